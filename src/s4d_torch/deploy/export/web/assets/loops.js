"use strict";
// The loops of a model in plain JavaScript, four of them as WebAssembly too, and the memory that
// both share. States are in double precision, all else in single; arrays have the channels as their
// last axis.

// 1 / (1 + e^-x)
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// The normal distribution function, to 1e-7: e^-(a polynomial) below zero, symmetric above.
function normal(x) {
  const a = Math.min(Math.abs(x), 6);
  const tail = Math.exp(-(0.693147178 + a * (0.797884736 + a * (0.318307627 + a * (0.0363463605
    + a * (-0.00480651656 + a * (-8.30202813e-6 + a * (1.95950087e-4 + a * (-5.16062230e-5
    + a * (6.56591673e-6 + a * -3.51310081e-7))))))))));
  return x < 0 ? tail : 1 - tail;
}

const activate = (x) => /*ACTIVATION*/x;
const mix = (v, h, width) => /*MIXING*/v[h];

const SLACK = 64;  // bytes that an array may begin later than the one before ends
const ARRAYS = { float32: Float32Array, float64: Float64Array, int8: Int8Array };

function decodeBytes(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}

// {name: {type, data}} with the bytes in base64, little endian as every browser has them.
function decodeArrays(described) {
  const found = {};
  for (const name of Object.keys(described))
    found[name] = new ARRAYS[described[name].type](decodeBytes(described[name].data));
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

// y = Re(c s) + d u, then s <- a s + u, s = re + i im (modes, width)
function complexSystem(a_re, a_im, c_re, c_im, d, re, im, u, y, width, modes) {
  for (let h = 0; h < width; h++) {
    let sum = d[h] * u[h];
    for (let m = 0, at = h; m < modes; m++, at += width) {
      const r = re[at], i = im[at];
      sum += c_re[at] * r + c_im[at] * i;
      re[at] = a_re[at] * r - a_im[at] * i + u[h];
      im[at] = a_re[at] * i + a_im[at] * r;
    }
    y[h] = sum;
  }
}

// seen_k = Re(right_k s), of the state before the sample; right and left are (rank, modes, width)
function lowRankSeen(right_re, right_im, re, im, seen, width, modes, rank) {
  seen.fill(0);
  for (let k = 0, at = 0; k < rank; k++)
    for (let m = 0, s = 0; m < modes; m++)
      for (let h = 0; h < width; h++, at++, s++)
        seen[k * width + h] += right_re[at] * re[s] + right_im[at] * im[s];
}

// s <- s - sum_k left_k seen_k
function lowRankLess(left_re, left_im, re, im, seen, width, modes, rank) {
  for (let k = 0, at = 0; k < rank; k++)
    for (let m = 0, s = 0; m < modes; m++)
      for (let h = 0; h < width; h++, at++, s++) {
        re[s] -= left_re[at] * seen[k * width + h];
        im[s] -= left_im[at] * seen[k * width + h];
      }
}

// The four of these that take the time, as WebAssembly (kernels.c) where there is such a thing.
const PLAIN = { affine, complexSystem, lowRankSeen, lowRankLess };

function byAddress(compiled) {
  const at = (array) => array.byteOffset;
  return {
    affine: (w, b, x, inputs, outputs, y) =>
      compiled.affine(at(w), at(b), at(x), inputs, outputs, at(y)),
    complexSystem: (a_re, a_im, c_re, c_im, d, re, im, u, y, width, modes) =>
      compiled.complexSystem(at(a_re), at(a_im), at(c_re), at(c_im), at(d), at(re), at(im), at(u),
        at(y), width, modes),
    lowRankSeen: (right_re, right_im, re, im, seen, width, modes, rank) =>
      compiled.lowRankSeen(at(right_re), at(right_im), at(re), at(im), at(seen), width, modes, rank),
    lowRankLess: (left_re, left_im, re, im, seen, width, modes, rank) =>
      compiled.lowRankLess(at(left_re), at(left_im), at(re), at(im), at(seen), width, modes, rank),
  };
}

// Arrays that both JavaScript and WebAssembly can read, `bytes` in all with what lies between.
class Memory {
  constructor(bytes) {
    this.next = 1024;
    try {
      const memory = new WebAssembly.Memory({ initial: Math.ceil((this.next + bytes) / 65536) });
      const module = new WebAssembly.Module(decodeBytes(KERNELS));
      const { exports } = new WebAssembly.Instance(module, { env: { memory } });
      this.buffer = memory.buffer;
      this.kernels = byAddress(exports);
    } catch {  // an old browser, or one that was told not to: the same, more slowly
      this.buffer = null;
      this.kernels = PLAIN;
    }
  }

  // A new array of zeros.
  zeros(Type, length) {
    if (this.buffer === null) return new Type(length);
    const found = new Type(this.buffer, this.next, length);
    this.next += SLACK + found.byteLength - found.byteLength % SLACK;
    return found;
  }

  copy(array) {
    const found = this.zeros(array.constructor, array.length);
    found.set(array);
    return found;
  }

  copies(arrays) {
    return Object.fromEntries(Object.entries(arrays).map(([name, each]) => [name, this.copy(each)]));
  }
}
