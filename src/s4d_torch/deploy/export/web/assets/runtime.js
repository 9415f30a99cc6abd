"use strict";
// A model that answers sample by sample, from the data that an export describes it with. All
// arithmetic is in double precision; arrays have the channels as their last axis.

// 1 / (1 + e^-x)
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// The normal distribution function, to 1e-7: e^-(a polynomial) below zero, symmetric above.
const TAIL = [0.693147178, 0.797884736, 0.318307627, 0.0363463605, -0.00480651656, -8.30202813e-6,
  1.9595008700e-4, -5.1606223e-5, 6.56591673e-6, -3.51310081e-7];
function normal(x) {
  const a = Math.min(Math.abs(x), 6);
  let power = 0;
  for (let i = TAIL.length - 1; i >= 0; i--) power = power * a + TAIL[i];
  const tail = Math.exp(-power);
  return x < 0 ? tail : 1 - tail;
}

const activate = (x) => /*ACTIVATION*/x;
const mix = (v, h, width) => /*MIXING*/v[h];

const ARRAYS = { float32: Float32Array, float64: Float64Array, int8: Int8Array };

// {type, data} with the bytes in base64, little endian as every browser has them.
function decodeArray({ type, data }) {
  const text = atob(data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return new ARRAYS[type](bytes.buffer);
}

function decodeArrays(described) {
  const found = {};
  for (const name of Object.keys(described)) found[name] = decodeArray(described[name]);
  if (found.mixing_scale) {  // whole numbers with one scale for each output
    const { mixing_weight: whole, mixing_scale: scale } = found;
    found.mixing_weight = Float32Array.from(whole, (w, i) => w * scale[i % scale.length]);
  }
  return found;
}

// y = b + W x, four inputs at a time; W is stored input by input.
function affine(w, b, x, inputs, outputs, y) {
  for (let o = 0; o < outputs; o++) y[o] = b[o];
  const whole = inputs - inputs % 4;
  let at = 0;
  for (let i = 0; i < whole; i += 4, at += 4 * outputs) {
    const x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
    const w1 = at + outputs, w2 = w1 + outputs, w3 = w2 + outputs;
    for (let o = 0; o < outputs; o++)
      y[o] += w[at + o] * x0 + w[w1 + o] * x1 + w[w2 + o] * x2 + w[w3 + o] * x3;
  }
  for (let i = whole; i < inputs; i++, at += outputs)
    for (let o = 0; o < outputs; o++) y[o] += w[at + o] * x[i];
}

// y = (x - mean) / deviation * scale + shift
function layerNorm(x, scale, shift, eps, y) {
  const width = x.length;
  let mean = 0, variance = 0;
  for (let h = 0; h < width; h++) mean += x[h];
  mean /= width;
  for (let h = 0; h < width; h++) variance += (x[h] - mean) * (x[h] - mean);
  const factor = 1 / Math.sqrt(variance / width + eps);
  for (let h = 0; h < width; h++) y[h] = (x[h] - mean) * factor * scale[h] + shift[h];
}

// A batch norm with the statistics of its training.
function affineNorm(x, scale, shift, eps, y) {
  for (let h = 0; h < x.length; h++) y[h] = x[h] * scale[h] + shift[h];
}

// Each reads u and the state s = re + i im (modes, width), gives y and moves the state on.

// y = Re(c s) + d u, then s <- a s + u
function complexSystem(p, size, re, im, u, y) {
  const { a_re, a_im, c_re, c_im, d } = p, { width, modes } = size;
  for (let h = 0; h < width; h++) y[h] = d[h] * u[h];
  for (let m = 0, at = 0; m < modes; m++)
    for (let h = 0; h < width; h++, at++) {
      const r = re[at], i = im[at], ar = a_re[at], ai = a_im[at];
      y[h] += c_re[at] * r + c_im[at] * i;
      re[at] = ar * r - ai * i + u[h];
      im[at] = ar * i + ai * r;
    }
}

// The same with real modes.
function realSystem(p, size, re, im, u, y) {
  const { a_re, c_re, d } = p, { width, modes } = size;
  for (let h = 0; h < width; h++) y[h] = d[h] * u[h];
  for (let m = 0, at = 0; m < modes; m++)
    for (let h = 0; h < width; h++, at++) {
      y[h] += c_re[at] * re[at];
      re[at] = a_re[at] * re[at] + u[h];
    }
}

// y = Re(c s) + d u, then s <- a s - sum_k left_k Re(right_k s) + u
function lowRankSystem(p, size, re, im, u, y) {
  const { left_re, left_im, right_re, right_im } = p, { width, modes, rank, seen } = size;
  seen.fill(0);
  for (let k = 0, at = 0; k < rank; k++)
    for (let m = 0, s = 0; m < modes; m++)
      for (let h = 0; h < width; h++, at++, s++)
        seen[k * width + h] += right_re[at] * re[s] + right_im[at] * im[s];
  complexSystem(p, size, re, im, u, y);
  for (let k = 0, at = 0; k < rank; k++)
    for (let m = 0, s = 0; m < modes; m++)
      for (let h = 0; h < width; h++, at++, s++) {
        re[s] -= left_re[at] * seen[k * width + h];
        im[s] -= left_im[at] * seen[k * width + h];
      }
}

const SYSTEMS = { pairs: complexSystem, real: realSystem, "low rank": lowRankSystem };
const NORMS = { layer: layerNorm, affine: affineNorm, none: null };

class Model {
  constructor(described) {
    this.size = { ...described.size };
    const { width, modes, layers, towers, rank, mixed } = this.size;
    this.prenorm = described.prenorm;
    this.pooling = described.pooling;
    this.eps = described.eps;
    this.system = SYSTEMS[described.kind];
    this.norm = NORMS[described.norm];
    this.whole = decodeArrays(described.arrays);
    this.layers = described.layers.map(decodeArrays);
    const numbers = (count) => new Float64Array(count);
    this.size.seen = numbers(rank * width);
    this.states = Array.from({ length: towers }, () => ({
      layers: Array.from({ length: layers }, () => [numbers(modes * width), numbers(modes * width)]),
      total: numbers(width),
      samples: 0,
    }));
    this.x = Array.from({ length: towers }, () => numbers(width));
    this.pooled = Array.from({ length: towers }, () => numbers(width));
    this.read = numbers(width);
    this.inner = numbers(width);
    this.mixed = numbers(mixed);
    this.both = numbers(4 * width);
    this.answer = numbers(this.size.outputs);
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
    else if (inputs === 1)
      for (let h = 0; h < width; h++) x[h] = whole.encoder_bias[h] + whole.encoder_weight[h] * u[at];
    else affine(whole.encoder_weight, whole.encoder_bias, u.slice(at, at + inputs), inputs, width, x);
    this.layers.forEach((layer, l) => this.applyLayer(layer, state.layers[l], x));
    if (prenorm && this.norm)
      this.norm(x, whole.last_norm_scale, whole.last_norm_shift, this.eps, x);
    if (this.pooling !== "mean") return pooled.set(x);
    state.samples += 1;
    for (let h = 0; h < width; h++) pooled[h] = (state.total[h] += x[h]) / state.samples;
  }

  // One residual block: x <- x + mix(activate(system(x))), with a norm before or after.
  applyLayer(layer, [re, im], x) {
    const { width, mixed } = this.size, { inner, prenorm } = this;
    let read = x, v = inner;
    if (prenorm && this.norm) {
      this.norm(x, layer.norm_scale, layer.norm_shift, this.eps, this.read);
      read = this.read;
    }
    this.system(layer, this.size, re, im, read, inner);
    for (let h = 0; h < width; h++) inner[h] = activate(inner[h]);
    if (layer.mixing_weight) {
      v = this.mixed;
      affine(layer.mixing_weight, layer.mixing_bias, inner, width, mixed, v);
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
      affine(whole.pair_weight, whole.pair_bias, both, 4 * width, width, inner);
      for (let h = 0; h < width; h++) inner[h] = activate(inner[h]);
      read = inner;
    }
    affine(whole.decoder_weight, whole.decoder_bias, read, width, outputs, this.answer);
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
