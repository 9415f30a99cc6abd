// The mathematics of a diagonal state space: x' = A x + B u, y = C x, one mode of each conjugate
// pair. Vectors of complex numbers are { re, im }, two arrays of doubles; scalars are [re, im].

const FLOOR = 1e-4; // the decay rate that no open constraint goes below

// ---- complex scalars ----------------------------------------------------------------------------

const mul = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];
const scale = (s, [a, b]) => [s * a, s * b];
const add = ([a, b], [c, d]) => [a + c, b + d];
const sub = ([a, b], [c, d]) => [a - c, b - d];
const conj = ([a, b]) => [a, -b];
const cexp = ([a, b]) => [Math.exp(a) * Math.cos(b), Math.exp(a) * Math.sin(b)];
const cabs = ([a, b]) => Math.hypot(a, b);
const div = (x, [c, d]) => scale(1 / (c * c + d * d), mul(x, [c, -d]));

const vector = (size) => ({ re: new Float64Array(size), im: new Float64Array(size) });
const at = (v, n) => [v.re[n], v.im[n]];
const put = (v, n, [re, im]) => {
  v.re[n] = re;
  v.im[n] = im;
};
const vectorOf = (size, value) => {
  const v = vector(size);
  for (let n = 0; n < size; n++) put(v, n, value(n));
  return v;
};
const sizeOf = (v) => v.re.length;

// ---- where A starts -----------------------------------------------------------------------------

// The normal part of HiPPO-LegS is -1/2 plus the skew matrix with sqrt(2n+1) sqrt(2k+1) / 2 above
// its diagonal. Differences of neighbouring rows of its eigenvalue equation leave a recurrence of
// two terms, and its ends meet where, with theta = 2 Im(A),
//     sum_n arctan(theta / (2n+1)) = (2m + 1) pi / 2,       m = 0 ... N/2 - 1.
// The left side grows with theta, so bisection finds every frequency. |V* B|^2 is 1 / (its slope).
const legsKept = new Map();

function legs(N) {
  if (!legsKept.has(N)) {
    const modes = Array.from({ length: N / 2 }, (_, k) => legsMode(N, N / 2 - 1 - k));
    legsKept.set(N, {
      frequency: Float64Array.from(modes, (mode) => mode.frequency), // the fastest first
      B: Float64Array.from(modes, (mode) => mode.B),
    });
  }
  return legsKept.get(N);
}

function legsMode(N, m) {
  const phase = (theta) => {
    let sum = 0;
    for (let n = N - 1; n >= 0; n--) sum += Math.atan(theta / (2 * n + 1));
    return sum;
  };
  const slope = (theta) => {
    let sum = 0;
    for (let n = 0; n < N; n++) sum += (2 * n + 1) / ((2 * n + 1) ** 2 + theta * theta);
    return sum;
  };
  const target = ((2 * m + 1) * Math.PI) / 2;
  let [low, high] = [Math.log(0.1), Math.log(4 * N * N)];
  for (let i = 0; i < 40; i++) {
    const middle = (low + high) / 2;
    if (phase(Math.exp(middle)) < target) low = middle;
    else high = middle;
  }
  let theta = Math.exp((low + high) / 2);
  theta -= (phase(theta) - target) / slope(theta); // Newton, for the last digits
  return { frequency: theta / 2, B: 1 / Math.sqrt(slope(theta)) };
}

// Each start: its name in the paper, its formula, and the values of A at the places n.
// law: Im(A) is a formula in n, so the places may be drawn at random. pairs: modes have conjugates.
const withFrequency = (law) => (n, N) => vectorOf(n.length, (k) => [-0.5, law(n[k], N)]);

const STARTS = {
  legs: {
    title: "S4D-LegS",
    formula: "−½ + i ω, the eigenvalues of HiPPO-LegS without its low-rank term",
    pairs: true,
    values: (n, N) => vectorOf(n.length, (k) => [-0.5, legs(N).frequency[k]]),
  },
  inv: {
    title: "S4D-Inv",
    formula: "−½ + i N/π (N/(2n+1) − 1)",
    pairs: true,
    law: true,
    values: withFrequency((n, N) => (N / Math.PI) * (N / (2 * n + 1) - 1)),
  },
  lin: {
    title: "S4D-Lin",
    formula: "−½ + i π n",
    pairs: true,
    law: true,
    values: withFrequency((n) => Math.PI * n),
  },
  inv2: {
    title: "S4D-Inv2",
    formula: "−½ + i N/π (N/(n+1) − 1)",
    pairs: true,
    law: true,
    values: withFrequency((n, N) => (N / Math.PI) * (N / (n + 1) - 1)),
  },
  quad: {
    title: "S4D-Quad",
    formula: "−½ + i (1+2n)²/π",
    pairs: true,
    law: true,
    values: withFrequency((n) => (1 + 2 * n) ** 2 / Math.PI),
  },
  rand: {
    title: "S4D-Rand",
    formula: "−exp(g) + i g′, with g and g′ standard normal",
    pairs: true,
    values(n, N, random) {
      const [real, imag] = [random.normal(n.length), random.normal(n.length)];
      return vectorOf(n.length, (k) => [-Math.exp(real[k]), imag[k]]);
    },
  },
  real: {
    title: "S4D-Real",
    formula: "−(n+1), N real modes, the spectrum of HiPPO-LegS itself",
    pairs: false,
    values: (n) => vectorOf(n.length, (k) => [-(n[k] + 1), 0]),
  },
  dfout: {
    title: "S4D-DFouT",
    formula: "−½ + i (2πn/N)/dt: poles evenly on the circle, dt acts on the decay alone",
    pairs: true,
    decayOnly: true, // Im(A) is kept as an angle per sample
    values: withFrequency((n, N) => (2 * Math.PI * n) / N),
  },
  ring: {
    title: "LRU",
    formula: "log λ, with λ uniform on the ring 0.9 ≤ |λ| < 0.999",
    pairs: true,
    values(n, N, random) {
      const [low, high] = [0.9 ** 2, 0.999 ** 2];
      const [radius, angle] = [random.uniform(n.length), random.uniform(n.length)];
      return vectorOf(n.length, (k) => [
        0.5 * Math.log(low + (high - low) * radius[k]),
        Math.PI * angle[k],
      ]);
    },
  },
};

// The system a module with one channel starts with; draws in the order of s4d_torch.SSM.
// choice: init, N, imagScale, randomImag, randomReal, B (ones, hippo, hippo-half),
// C (normal, ones), seed. A start that keeps angles per sample has frequencies for this dt.
function makeStart(choice, dt) {
  const start = STARTS[choice.init];
  const { N } = choice;
  const modes = start.pairs ? N / 2 : N;
  const random = makeGenerator(choice.seed);
  let places = Float64Array.from({ length: modes }, (_, k) => k);
  if (choice.randomImag && start.law) places = random.uniform(modes).map((x) => modes * x);
  const A = start.values(places, N, random);
  if (choice.randomReal) A.re = random.uniform(modes).map((x) => -x);
  const faster = (start.pairs ? choice.imagScale : 1) / (start.decayOnly ? dt : 1);
  A.im = A.im.map((x) => faster * x);
  const hippo = choice.init === "legs" && choice.B !== "ones" ? legs(N).B : null;
  const half = choice.B === "hippo-half" ? 0.5 : 1;
  const B = vectorOf(modes, (k) => [hippo ? half * hippo[k] : 1, 0]);
  const C = vectorOf(modes, () => [1, 0]);
  if (choice.C === "normal") {
    C.re = random.normal(modes);
    if (start.pairs) C.im = random.normal(modes);
  }
  return { A, B, C, pairs: start.pairs };
}

// ---- constraints: Re(A) = -forward(raw) ---------------------------------------------------------

const atLeast = (decay) => Math.max(decay, FLOOR);

const CONSTRAINTS = {
  exp: {
    formula: "Re A = −exp(raw)",
    forward: Math.exp,
    inverse: (decay) => Math.log(atLeast(decay)),
    stable: true,
  },
  relu: {
    formula: "Re A = −(max(raw, 0) + 0.0001)",
    forward: (raw) => Math.max(raw, 0) + FLOOR,
    inverse: (decay) => Math.max(decay - FLOOR, FLOOR), // clear of the kink, where slopes vanish
    stable: true,
  },
  softplus: {
    formula: "Re A = −log(1 + exp(raw))",
    forward: (raw) => (raw > 40 ? raw : Math.log1p(Math.exp(raw))),
    inverse: (decay) => atLeast(decay) + Math.log(-Math.expm1(-atLeast(decay))),
    stable: true,
  },
  identity: {
    formula: "Re A = −raw: nothing keeps it negative",
    forward: (raw) => raw,
    inverse: (decay) => decay,
    stable: false,
  },
  best: {
    formula: "Re A = −1 / (raw² + 0.5)",
    forward: (raw) => 1 / (raw * raw + 0.5),
    inverse: (decay) => -Math.sqrt(Math.max(1 / atLeast(decay) - 0.5, FLOOR)), // up to 2
    stable: true,
  },
};

// What is left of a wanted Re(A) once it is stored behind the constraint.
const constrained = (name, real) => -CONSTRAINTS[name].forward(CONSTRAINTS[name].inverse(-real));

// ---- discretisations: log A_bar, what an input gives now, what it leaves in the state -----------

function series(z, skip) {
  let total = [1, 0];
  for (let k = 14; k > 0; k--) total = add([1, 0], scale(1 / (k + skip), mul(total, z)));
  return skip === 1 ? total : scale(0.5, total);
}

// (e^z - 1) / z and (e^z - 1 - z) / z^2, by their series where the quotients lose digits
const phi1 = (z) => (cabs(z) < 0.5 ? series(z, 1) : div(sub(cexp(z), [1, 0]), z));
const phi2 = (z) => (cabs(z) < 0.5 ? series(z, 2) : div(sub(phi1(z), [1, 0]), z));

// log((1 + x) / (1 - x)); |1+x|^2 / |1-x|^2 = 1 + 4a / |1-x|^2 keeps the slow decay of fast modes
function logCayley([a, b]) {
  const below = (1 - a) ** 2 + b * b;
  const above = (1 + a) ** 2 + b * b;
  const tiny = 2 ** -1022;
  const modulus =
    above < 0.5 * below ? Math.log(Math.max(above / below, tiny)) : Math.log1p((4 * a) / below);
  const angle = above < tiny ? 0 : Math.atan2(2 * b, (1 - a) * (1 + a) - b * b);
  return [modulus / 2, angle];
}

// Each rule: one mode discretised, and the A that a wanted A_bar belongs to.
const RULES = {
  bilinear: {
    formula: "Ā = (1 + dt A/2) / (1 − dt A/2)",
    step(A, B, dt) {
      const half = scale(dt / 2, A);
      return { logA: logCayley(half), now: div(scale(dt, B), sub([1, 0], half)), next: null };
    },
    undo: (bar, dt) => scale(2 / dt, div(sub(bar, [1, 0]), add(bar, [1, 0]))),
  },
  zoh: {
    formula: "Ā = exp(dt A), the input constant over a step",
    step(A, B, dt) {
      const z = scale(dt, A);
      return { logA: z, now: scale(dt, mul(B, phi1(z))), next: null };
    },
    undo(bar, dt) {
      const modulus = Math.max(cabs(bar), 1e-12); // no A has an A_bar of 0
      return scale(1 / dt, [Math.log(modulus), Math.atan2(bar[1], bar[0])]);
    },
  },
  foh: {
    formula: "Ā = exp(dt A), the input linear over a step",
    step(A, B, dt) {
      const z = scale(dt, A);
      const mean = phi1(z);
      const into = scale(dt, B);
      return { logA: z, now: mul(into, phi2(z)), next: mul(into, mul(mean, mean)) };
    },
    undo: (bar, dt) => RULES.zoh.undo(bar, dt),
  },
  dirac: {
    formula: "Ā = exp(dt A), B̄ = B: samples are events",
    step: (A, B, dt) => ({ logA: scale(dt, A), now: B, next: null }),
    undo: (bar, dt) => RULES.zoh.undo(bar, dt),
  },
};

// system: A, B, C, pairs, dt, rule -> logA, bar, now, next, each a vector of modes.
function discretize(system) {
  const size = sizeOf(system.A);
  const result = { logA: vector(size), bar: vector(size), now: vector(size), next: vector(size) };
  for (let n = 0; n < size; n++) {
    const step = RULES[system.rule].step(at(system.A, n), at(system.B, n), system.dt);
    const bar = cexp(step.logA);
    put(result.logA, n, step.logA);
    put(result.bar, n, bar);
    put(result.now, n, step.now);
    put(result.next, n, step.next ?? mul(bar, step.now));
  }
  return result;
}

// ---- what the system does -----------------------------------------------------------------------

// K_0 = C B_now, K_l = C A_bar^(l-1) B_next, summed over the modes in `only`, or over all.
function kernel(system, discrete, length, only = null) {
  const K = new Float64Array(length);
  const times = system.pairs ? 2 : 1;
  const chosen = only ?? Array.from({ length: sizeOf(system.A) }, (_, n) => n);
  for (const n of chosen) {
    const C = at(system.C, n);
    K[0] += times * mul(C, at(discrete.now, n))[0];
    let [x, y] = scale(times, mul(C, at(discrete.next, n)));
    const [a, b] = at(discrete.bar, n);
    for (let l = 1; l < length; l++) {
      K[l] += x;
      const next = a * x - b * y;
      y = a * y + b * x;
      x = next;
    }
  }
  return K;
}

// e^(tA_n) B_n at the times t.
function basis(system, n, t) {
  const values = vector(t.length);
  for (let i = 0; i < t.length; i++) {
    put(values, i, mul(cexp(scale(t[i], at(system.A, n))), at(system.B, n)));
  }
  return values;
}

// H(z) = C B_now + C B_next / (z - A_bar) at z = e^(2 pi i f), f in cycles per sample.
function response(system, discrete, frequencies) {
  return resolvents(system, frequencies, (f) => cexp([0, 2 * Math.PI * f]), discrete.bar, (n) => [
    mul(at(system.C, n), at(discrete.next, n)),
    mul(at(system.C, n), at(discrete.now, n)),
  ]);
}

// G(s) = C B / (s - A) at s = 2 pi i f / dt: the same, before the discretisation.
function continuousResponse(system, frequencies) {
  const point = (f) => [0, (2 * Math.PI * f) / system.dt];
  return resolvents(system, frequencies, point, system.A, (n) => [
    mul(at(system.C, n), at(system.B, n)),
    [0, 0],
  ]);
}

// sum over modes of through + weight / (z - pole), and the same of the conjugates. Written out in
// real numbers: this is most of the work while a pole is dragged.
function resolvents(system, frequencies, point, poles, parts) {
  const terms = [...poles.re].map((_, n) => [...at(poles, n), ...parts(n).flat()]);
  if (system.pairs) terms.push(...terms.map(([a, b, c, d, e, f]) => [a, -b, c, -d, e, -f]));
  const flat = Float64Array.from(terms.flat());
  const values = vector(frequencies.length);
  for (let i = 0; i < frequencies.length; i++) {
    const [x, y] = point(frequencies[i]);
    let re = 0;
    let im = 0;
    for (let k = 0; k < flat.length; k += 6) {
      const a = x - flat[k];
      const b = y - flat[k + 1];
      const size = a * a + b * b;
      re += flat[k + 4] + (flat[k + 2] * a + flat[k + 3] * b) / size;
      im += flat[k + 5] + (flat[k + 3] * a - flat[k + 2] * b) / size;
    }
    values.re[i] = re;
    values.im[i] = im;
  }
  return values;
}

const magnitudes = (v) => v.re.map((re, i) => Math.hypot(re, v.im[i]));
