"use strict";
// A strip chart: lines over time on a canvas, with the loudness of a sound below them.

const MOST_LINES = 6;
const WIDEST = 24;  // pixels of a loudness, where the next one is far

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const lineColour = (i) => styleOf(`--line-${i % MOST_LINES}`);

// Steps of 1, 2 or 5 times a power of ten: about `count` of them between two numbers.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}

// What is shown, kept as rows of numbers with a time each; NaN breaks a line.
class History {
  constructor(width, most) {
    Object.assign(this, { width, most });
    this.clear();
  }

  clear() {
    this.times = [];
    this.rows = [];
    this.loudness = [];  // [time, level] pairs
  }

  add(time, row) {
    this.times.push(time);
    this.rows.push(Float64Array.from(row));
    if (this.times.length > 2 * this.most) {  // not at each addition
      this.times = this.times.slice(-this.most);
      this.rows = this.rows.slice(-this.most);
    }
  }

  cut(time) {
    if (this.rows.length) this.add(time, new Float64Array(this.width).fill(NaN));
  }

  addLoudness(time, level) {
    this.loudness.push([time, level]);
    if (this.loudness.length > 2 * this.most) this.loudness = this.loudness.slice(-this.most);
  }

  // The outputs that matter between two times, in the order of their names: those that are large
  // at the end of a line, or else on the whole.
  leading(from, to, count) {
    const ends = new Float64Array(this.width).fill(-Infinity), sums = new Float64Array(this.width);
    let rows = 0;
    this.rows.forEach((row, t) => {
      if (this.times[t] < from || this.times[t] > to || Number.isNaN(row[0])) return;
      const end = t === this.rows.length - 1 || Number.isNaN(this.rows[t + 1][0]);
      rows += 1;
      for (let i = 0; i < row.length; i++) {
        sums[i] += row[i];
        if (end) ends[i] = Math.max(ends[i], row[i]);
      }
    });
    const score = Array.from(sums, (sum, i) => sum / rows + (Number.isFinite(ends[i]) ? ends[i] : 0));
    const order = [...score.keys()].sort((a, b) => score[b] - score[a] || a - b);
    return order.slice(0, count).sort((a, b) => a - b);
  }
}

class Strip {
  constructor(canvas, keys, history, { names, probabilities, unit }) {
    Object.assign(this, { canvas, keys, history, names, probabilities, unit, from: 0, to: 1 });
    this.colours = new Map();  // of outputs: each keeps its own while it is shown
    this.waiting = false;
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  show(from, to) {
    Object.assign(this, { from, to });
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  // Colours stay with an output as long as it is on the chart.
  assign(shown) {
    for (const output of [...this.colours.keys()])
      if (!shown.includes(output)) this.colours.delete(output);
    const used = new Set(this.colours.values());
    const free = [...Array(MOST_LINES).keys()].filter((i) => !used.has(i));
    for (const output of shown) if (!this.colours.has(output)) this.colours.set(output, free.shift());
  }

  range(shown) {
    if (this.probabilities) return [0, 1];
    let low = Infinity, high = -Infinity;
    this.history.rows.forEach((row, t) => {
      if (this.history.times[t] < this.from || this.history.times[t] > this.to) return;
      for (const i of shown) {
        if (row[i] < low) low = row[i];
        if (row[i] > high) high = row[i];
      }
    });
    if (!(high >= low)) return [0, 1];
    const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
    return [low - room, high + room];
  }

  draw() {
    const { canvas, history, from, to } = this, scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !height) return;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const shown = history.leading(from, to, MOST_LINES).filter(() => history.rows.length);
    this.assign(shown);
    const sound = history.loudness.length > 0, bottom = height - 22 - (sound ? 34 : 0);
    const [low, high] = this.range(shown);
    const x = (time) => 44 + (time - from) / (to - from) * (width - 54);
    const y = (value) => 8 + (high - value) / (high - low) * (bottom - 8);
    this.axes(pen, x, y, { low, high, width, height, bottom });
    if (sound) this.drawLoudness(pen, x, height - 22, 30);
    pen.save();
    pen.beginPath();
    pen.rect(44, 0, width - 54, height);
    pen.clip();
    for (const output of shown) this.drawLine(pen, x, y, output);
    pen.restore();
    this.showKeys(shown);
  }

  axes(pen, x, y, { low, high, width, height, bottom }) {
    pen.font = "12px system-ui, sans-serif";
    pen.lineWidth = 1;
    pen.strokeStyle = styleOf("--grid");
    pen.fillStyle = styleOf("--faint");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of ticks(low, high, 4)) {
      pen.beginPath();
      pen.moveTo(44, y(value));
      pen.lineTo(width - 10, y(value));
      pen.stroke();
      const text = this.probabilities ? `${Math.round(100 * value)} %` : String(value);
      pen.fillText(text, 38, y(value), 36);
    }
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    const marks = ticks(this.from, this.to, Math.max(2, Math.min(8, width / 110)));
    marks.forEach((time, i) => {
      const last = i === marks.length - 1;
      pen.textAlign = last && x(time) > width - 40 ? "right" : "center";
      const words = last ? `${time} ${this.unit}` : String(time);
      pen.fillText(words, Math.min(x(time), width - 2), height - 5);
    });
  }

  drawLine(pen, x, y, output) {
    const { times, rows } = this.history;
    pen.strokeStyle = lineColour(this.colours.get(output));
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.beginPath();
    let open = false, alone = null;
    for (let t = 0; t < rows.length; t++) {
      const value = rows[t][output];
      if (Number.isNaN(value)) { open = false; continue; }
      if (times[t + 1] < this.from || times[t] > this.to) continue;
      if (open) pen.lineTo(x(times[t]), y(value));
      else pen.moveTo(x(times[t]), y(value));
      alone = open ? null : [x(times[t]), y(value)];
      open = true;
    }
    pen.stroke();
    if (alone && rows.length === 1) {  // a single answer is a point
      pen.fillStyle = pen.strokeStyle;
      pen.beginPath();
      pen.arc(alone[0], alone[1], 3.5, 0, 7);
      pen.fill();
    }
  }

  drawLoudness(pen, x, base, height) {
    pen.fillStyle = styleOf("--faint");
    pen.globalAlpha = 0.5;
    const { loudness } = this.history;
    for (let t = 0; t < loudness.length; t++) {
      const [time, level] = loudness[t];
      if (time < this.from || time > this.to) continue;
      const end = loudness[t + 1]?.[0] ?? this.to;
      const tall = Math.max(0.5, height * Math.min(1, level));
      pen.fillRect(x(time), base - height / 2 - tall / 2, Math.min(x(end) - x(time), WIDEST), tall);
    }
    pen.globalAlpha = 1;
  }

  showKeys(shown) {
    const now = shown.map((output) => `${output}:${this.colours.get(output)}`).join();
    if (now === this.keyed) return;
    this.keyed = now;
    this.keys.replaceChildren(...shown.map((output) => {
      const key = document.createElement("span");
      key.className = "key";
      key.style.setProperty("--line", `var(--line-${this.colours.get(output)})`);
      key.textContent = this.names[output];
      return key;
    }));
  }
}
