// The random numbers of torch.Generator on a CPU: a seed draws here what it draws in Python, so
// that the copied code gives the very picture on the screen.

function makeGenerator(seed) {
  // Mersenne Twister, 32 bits
  const words = new Uint32Array(624);
  words[0] = seed >>> 0;
  for (let i = 1; i < 624; i++) {
    words[i] = Math.imul(1812433253, words[i - 1] ^ (words[i - 1] >>> 30)) + i;
  }
  let place = 624;
  let spare = null; // the second of two normal draws, kept for the next call as torch does

  function refill() {
    for (let i = 0; i < 624; i++) {
      const joined = (words[i] & 0x80000000) | (words[(i + 1) % 624] & 0x7fffffff);
      words[i] = words[(i + 397) % 624] ^ (joined >>> 1) ^ (joined & 1 ? 0x9908b0df : 0);
    }
    place = 0;
  }

  function next32() {
    if (place === 624) refill();
    let x = words[place++];
    x ^= x >>> 11;
    x ^= (x << 7) & 0x9d2c5680;
    x ^= (x << 15) & 0xefc60000;
    return (x ^ (x >>> 18)) >>> 0;
  }

  // the lower 53 bits of two words make a double in [0, 1)
  const draw = () => {
    const high = next32();
    return ((high & 0x1fffff) * 2 ** 32 + next32()) * 2 ** -53;
  };

  // torch turns blocks of 16 uniform draws into normal ones, the first eight with the last eight
  function fillBlock(values, start) {
    for (let j = start; j < start + 8; j++) {
      const radius = Math.sqrt(-2 * Math.log(1 - values[j]));
      const angle = 2 * Math.PI * values[j + 8];
      values[j] = radius * Math.cos(angle);
      values[j + 8] = radius * Math.sin(angle);
    }
  }

  function single() {
    if (spare !== null) {
      const value = spare;
      spare = null;
      return value;
    }
    const angle = 2 * Math.PI * draw();
    const radius = Math.sqrt(-2 * Math.log1p(-draw()));
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  }

  return {
    uniform: (count) => Float64Array.from({ length: count }, draw),
    normal(count) {
      if (count < 16) return Float64Array.from({ length: count }, single);
      const values = Float64Array.from({ length: count }, draw);
      for (let start = 0; start + 16 <= count; start += 16) fillBlock(values, start);
      if (count % 16) {
        for (let j = count - 16; j < count; j++) values[j] = draw();
        fillBlock(values, count - 16);
      }
      return values;
    },
  };
}
