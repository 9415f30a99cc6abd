"use strict";
// A model that answers sample by sample, from the data that an export describes it with.

// y = c s + d u, then s <- a s + u, with real modes
function realSystem(model, p, [re], u, y) {
  const { a_re, c_re, d } = p, { width, modes } = model.size;
  for (let h = 0; h < width; h++) {
    let sum = d[h] * u[h];
    for (let m = 0, at = h; m < modes; m++, at += width) {
      sum += c_re[at] * re[at];
      re[at] = a_re[at] * re[at] + u[h];
    }
    y[h] = sum;
  }
}

function diagonalSystem(model, p, [re, im], u, y) {
  const { width, modes } = model.size;
  model.kernels.complexSystem(p.a_re, p.a_im, p.c_re, p.c_im, p.d, re, im, u, y, width, modes);
}

// y = Re(c s) + d u, then s <- a s - sum_k left_k Re(right_k s) + u
function lowRankSystem(model, p, [re, im], u, y) {
  const { seen, kernels, size: { width, modes, rank } } = model;
  kernels.lowRankSeen(p.right_re, p.right_im, re, im, seen, width, modes, rank);
  diagonalSystem(model, p, [re, im], u, y);
  kernels.lowRankLess(p.left_re, p.left_im, re, im, seen, width, modes, rank);
}

const SYSTEMS = { pairs: diagonalSystem, real: realSystem, "low rank": lowRankSystem };
const NORMS = { layer: layerNorm, affine: affineNorm, none: null };

class Model {
  constructor(described) {
    this.size = { ...described.size };
    const { width, modes, layers, towers, rank, mixed, inputs, outputs } = this.size;
    this.prenorm = described.prenorm;
    this.pooling = described.pooling;
    this.eps = described.eps;
    this.system = SYSTEMS[described.kind];
    this.norm = NORMS[described.norm];
    const whole = decodeArrays(described.arrays), parts = described.layers.map(decodeArrays);
    const stored = [whole, ...parts].flatMap(Object.values);
    const arrays = stored.length + towers * (2 * layers + 3) + 7;
    const numbers = towers * (2 * layers * modes + 3) + rank + 3 + mixed + 4;  // for each channel
    const memory = new Memory(stored.reduce((sum, each) => sum + each.byteLength, 0)
      + 8 * (numbers * width + inputs + outputs) + SLACK * arrays);
    this.kernels = memory.kernels;
    this.engine = memory.buffer ? "WebAssembly" : "JavaScript";
    this.whole = memory.copies(whole);
    this.layers = parts.map((each) => memory.copies(each));
    const doubles = (count) => memory.zeros(Float64Array, count);
    const floats = (count) => memory.zeros(Float32Array, count);
    this.states = Array.from({ length: towers }, () => ({
      layers: Array.from({ length: layers }, () => [doubles(modes * width), doubles(modes * width)]),
      total: doubles(width),
      samples: 0,
    }));
    this.seen = doubles(rank * width);
    this.x = Array.from({ length: towers }, () => floats(width));
    this.pooled = Array.from({ length: towers }, () => floats(width));
    this.given = floats(inputs);
    this.read = floats(width);
    this.inner = floats(width);
    this.mixed = floats(mixed);
    this.both = floats(4 * width);
    this.answer = floats(outputs);
  }

  // A new sequence begins.
  reset() {
    for (const state of this.states) {
      for (const [re, im] of state.layers) { re.fill(0); im.fill(0); }
      state.total.fill(0);
      state.samples = 0;
    }
  }

  // Read samples, `size.sample` numbers each; the answers after each, `size.outputs` numbers each.
  // Nothing is read if one of them is no number, or a token that there is not.
  push(u) {
    const { sample, outputs } = this.size, samples = u.length / sample;
    this.check(u, samples);
    const answers = new Float64Array(samples * outputs);
    for (let t = 0; t < samples; t++) answers.set(this.step(u, t * sample), t * outputs);
    return answers;
  }

  check(u, samples) {
    const { sample, tokens } = this.size;
    if (!Number.isInteger(samples)) throw new Error(`a sample is ${sample} numbers, got ${u.length}`);
    for (let i = 0; i < u.length; i++) {
      if (!Number.isFinite(u[i]))
        throw new Error(`sample ${Math.floor(i / sample)} holds ${u[i]}, expected a finite number`);
      if (tokens && !(Number.isInteger(u[i]) && u[i] >= 0 && u[i] < tokens))
        throw new Error(`sample ${Math.floor(i / sample)} is ${u[i]}, expected a whole number `
          + `from 0 to ${tokens - 1}`);
    }
  }

  // The answer to one sample, the numbers of u from `at` on; it is overwritten by the next.
  step(u, at) {
    const { sample, towers } = this.size;
    for (let i = 0; i < towers; i++) this.readSample(u, at + i * sample / towers, i);
    return this.decode();
  }

  readSample(u, at, tower) {
    const { width, tokens, inputs } = this.size, { whole, prenorm } = this;
    const x = this.x[tower], pooled = this.pooled[tower], state = this.states[tower];
    if (tokens) x.set(whole.encoder_rows.subarray(u[at] * width, (u[at] + 1) * width));
    else {
      for (let i = 0; i < inputs; i++) this.given[i] = u[at + i];
      this.kernels.affine(whole.encoder_weight, whole.encoder_bias, this.given, inputs, width, x);
    }
    this.layers.forEach((layer, l) => this.applyLayer(layer, state.layers[l], x));
    if (prenorm && this.norm)
      this.norm(x, whole.last_norm_scale, whole.last_norm_shift, this.eps, x);
    if (this.pooling !== "mean") return pooled.set(x);
    state.samples += 1;
    for (let h = 0; h < width; h++) pooled[h] = (state.total[h] += x[h]) / state.samples;
  }

  // One residual block: x <- x + mix(activate(system(x))), with a norm before or after.
  applyLayer(layer, state, x) {
    const { width, mixed } = this.size, { inner, prenorm } = this;
    let read = x, v = inner;
    if (prenorm && this.norm) {
      this.norm(x, layer.norm_scale, layer.norm_shift, this.eps, this.read);
      read = this.read;
    }
    this.system(this, layer, state, read, inner);
    for (let h = 0; h < width; h++) inner[h] = activate(inner[h]);
    if (layer.mixing_weight) {
      v = this.mixed;
      this.kernels.affine(layer.mixing_weight, layer.mixing_bias, inner, width, mixed, v);
    }
    for (let h = 0; h < width; h++) x[h] += mix(v, h, width);
    if (!prenorm && this.norm) this.norm(x, layer.norm_scale, layer.norm_shift, this.eps, x);
  }

  // Of two sequences a and b the decoder reads a, b, a - b and a b.
  decode() {
    const { width, outputs, towers } = this.size, { whole, both, inner } = this;
    const [a, b] = this.pooled;
    let read = a;
    if (towers === 2) {
      for (let h = 0; h < width; h++) {
        both[h] = a[h];
        both[h + width] = b[h];
        both[h + 2 * width] = a[h] - b[h];
        both[h + 3 * width] = a[h] * b[h];
      }
      this.kernels.affine(whole.pair_weight, whole.pair_bias, both, 4 * width, width, inner);
      for (let h = 0; h < width; h++) inner[h] = activate(inner[h]);
      read = inner;
    }
    this.kernels.affine(whole.decoder_weight, whole.decoder_bias, read, width, outputs, this.answer);
    return this.answer;
  }
}

// The largest difference from the answers that the export has from the model itself, of the
// largest of them: {u, y, block}, an answer after each block of samples.
function selfTest(model, { u, y, block }) {
  const { sample, outputs } = model.size;
  model.reset();
  const found = model.push(u);
  let largest = 0, difference = 0;
  y.forEach((wanted, i) => {
    const t = (Math.floor(i / outputs) + 1) * block - 1, got = found[t * outputs + i % outputs];
    largest = Math.max(largest, Math.abs(wanted));
    difference = Math.max(difference, Number.isFinite(got) ? Math.abs(got - wanted) : Infinity);
  });
  model.reset();
  if (u.length !== sample * block * y.length / outputs) throw new Error("the test vector is damaged");
  return difference / (largest || 1);
}
