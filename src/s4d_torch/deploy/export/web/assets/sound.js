"use strict";
// Sound as numbers: wav files, other sampling rates, and where a word begins and ends.

// {rate, channels: [Float32Array, ...]} with full scale at 1, of PCM in 8 to 32 bits or of floats.
function readWav(buffer) {
  const view = new DataView(buffer), bytes = view.byteLength;
  const tag = (at) => String.fromCharCode(...new Uint8Array(buffer, at, 4));
  if (bytes < 12 || tag(0) !== "RIFF" || tag(8) !== "WAVE") throw new Error("it is no wav file");
  let format = null, data = null;
  for (let at = 12; at + 8 <= bytes;) {
    const name = tag(at), size = view.getUint32(at + 4, true), start = at + 8;
    if (name === "fmt " && start + 16 <= bytes) format = readFormat(view, start, size);
    // a file that was written to a pipe has no true size
    if (name === "data") data = [start, Math.min(size, bytes - start)];
    if (name === "data" && format) break;
    at = start + size + size % 2;
  }
  if (!format || !data) throw new Error("the wav file has no format, or no samples");
  return decodeWav(view, format, ...data);
}

function readFormat(view, start, size) {
  let kind = view.getUint16(start, true);
  if (kind === 0xfffe && size >= 26) kind = view.getUint16(start + 24, true);  // extensible
  return {
    kind,
    channels: view.getUint16(start + 2, true),
    rate: view.getUint32(start + 4, true),
    bits: view.getUint16(start + 14, true),
  };
}

const SAMPLES = {
  "1/8": (view, at) => (view.getUint8(at) - 128) / 128,
  "1/16": (view, at) => view.getInt16(at, true) / 32768,
  "1/24": (view, at) => (view.getInt16(at + 1, true) * 256 + view.getUint8(at)) / 8388608,
  "1/32": (view, at) => view.getInt32(at, true) / 2147483648,
  "3/32": (view, at) => view.getFloat32(at, true),
  "3/64": (view, at) => view.getFloat64(at, true),
};

function decodeWav(view, { kind, channels, rate, bits }, start, size) {
  const read = SAMPLES[`${kind}/${bits}`], width = bits / 8;
  if (!read || !channels || !rate)
    throw new Error(`a wav file of kind ${kind} with ${bits} bits is not known here`);
  const frames = Math.floor(size / (width * channels));
  const found = Array.from({ length: channels }, () => new Float32Array(frames));
  for (let t = 0, at = start; t < frames; t++)
    for (let c = 0; c < channels; c++, at += width) found[c][t] = read(view, at);
  return { rate, channels: found };
}

function mixDown(channels) {
  if (channels.length === 1) return channels[0];
  return channels[0].map((_, t) => channels.reduce((sum, each) => sum + each[t], 0) / channels.length);
}

// Sound at another sampling rate, block by block: each new sample is a sum over old ones weighted
// by a sinc under a window, which holds back what the lower rate cannot carry.
const CROSSINGS = 24, FINE = 256;  // zeros of the sinc on each side; table entries between two

class Resampler {
  constructor(from, to) {
    this.ratio = from / to;
    this.cutoff = Math.min(1, to / from) * (from === to ? 1 : 0.95);
    this.reach = Math.ceil(CROSSINGS / this.cutoff);
    this.table = Float64Array.from({ length: CROSSINGS * FINE + 2 }, (_, i) => {
      const x = i / FINE, window = x < CROSSINGS ? Math.cos(Math.PI * x / CROSSINGS / 2) ** 2 : 0;
      return window * (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
    });
    this.kept = new Float32Array(this.reach);  // silence before the beginning
    this.first = -this.reach;  // place of kept[0] in the sound
    this.next = 0;  // new samples so far
  }

  weight(distance) {
    const x = Math.abs(distance) * this.cutoff * FINE, i = Math.floor(x);
    if (i > CROSSINGS * FINE) return 0;
    return this.table[i] + (x - i) * (this.table[i + 1] - this.table[i]);
  }

  push(block) {
    if (this.ratio === 1) return block;
    const all = new Float32Array(this.kept.length + block.length);
    all.set(this.kept);
    all.set(block, this.kept.length);
    const end = this.first + all.length, found = [];
    for (; this.next * this.ratio + this.reach < end; this.next++) {
      const place = this.next * this.ratio, low = Math.ceil(place - this.reach);
      let sum = 0;
      for (let k = low; k <= place + this.reach; k++)
        sum += all[k - this.first] * this.weight(place - k);
      found.push(sum * this.cutoff);
    }
    const keep = Math.max(0, Math.ceil(this.next * this.ratio - this.reach) - this.first);
    this.kept = all.slice(keep);
    this.first += keep;
    return Float32Array.from(found);
  }

  // The last samples, which wait for what comes after them: silence.
  end() {
    return this.push(new Float32Array(this.reach + Math.ceil(this.ratio)));
  }
}

function resampled(samples, from, to) {
  if (from === to) return samples;
  const resampler = new Resampler(from, to), first = resampler.push(samples), last = resampler.end();
  const found = new Float32Array(Math.ceil(samples.length * to / from));
  found.set(first.subarray(0, found.length));
  found.set(last.subarray(0, found.length - first.length), first.length);
  return found;
}

const loudnessOf = (block) => Math.sqrt(block.reduce((sum, x) => sum + x * x, 0) / (block.length || 1));

// Cuts a stream into words: `onWord("begin" | "samples" | "end", samples)`. A word begins when
// the sound is well above the noise before, and ends before a pause, which is no part of it.
// After `most` seconds it is no word but noise.
class Gate {
  constructor(rate, onWord, most = 5) {
    Object.assign(this, { rate, onWord, most, noise: 0.01, open: false, loud: 0, quiet: 0 });
    this.length = 0;  // blocks of this word
    this.block = Math.max(1, Math.round(rate / 100));
    this.rest = new Float32Array(0);
    this.before = [];  // blocks just before a word, of which its beginning is a part
    this.held = [];  // quiet blocks within a word, or after it
  }

  push(samples) {
    const all = new Float32Array(this.rest.length + samples.length);
    all.set(this.rest);
    all.set(samples, this.rest.length);
    let at = 0;
    for (; at + this.block <= all.length; at += this.block) this.take(all.slice(at, at + this.block));
    this.rest = all.slice(at);
  }

  take(block) {
    const level = loudnessOf(block);
    const heard = level > (this.open ? 1.6 : 3) * this.noise + (this.open ? 0.002 : 0.005);
    this.loud = heard ? this.loud + 1 : 0;
    this.quiet = heard ? 0 : this.quiet + 1;
    this.length = this.open ? this.length + 1 : 0;
    if (!this.open) {
      // falls at once, rises slowly: a word must not become the noise it is compared with
      this.noise += (level < this.noise ? 0.3 : 0.01) * (level - this.noise);
      this.before = [...this.before.slice(-5), block];
      if (this.loud < 2) return;
      this.open = true;
      this.onWord("begin");
      for (const each of this.before) this.onWord("samples", each);
      this.before = [];
    } else if (this.quiet > 4) {
      this.held.push(block);
      if (this.quiet >= 40) this.close();
    } else {
      for (const each of [...this.held, block]) this.onWord("samples", each);
      this.held = [];
      if (this.length < 100 * this.most) return;
      this.noise = level;
      this.close();
    }
  }

  close() {
    if (this.open) this.onWord("end");
    this.open = false;
    this.held = [];
    this.quiet = this.loud = 0;
  }
}
