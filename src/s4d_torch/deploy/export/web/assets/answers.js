"use strict";
// What the outputs of a model mean, and a reader that keeps the page alive while it computes.

const element = (id) => document.getElementById(id);
const page = JSON.parse(element("model").textContent);
const MOST_BARS = 10;
const SLICE = 10;  // milliseconds of computing between two looks at the visitor

function fail(words) {
  element("message").textContent = words;
  element("message").hidden = !words;
}

function softmax(y) {
  const top = Math.max(...y), found = Float64Array.from(y, (value) => Math.exp(value - top));
  const sum = found.reduce((a, b) => a + b, 0);
  return found.map((value) => value / sum);
}

const regression = page.data?.kind === "regression";
const probabilities = page.data !== null && !regression;

// Outputs as they are shown: probabilities, numbers in the unit of the data, or as they are.
function meaning(y) {
  if (probabilities) return softmax(y);
  if (!regression) return Float64Array.from(y);
  return Float64Array.from(y, (value) => value * page.data.target_scale + page.data.target_shift);
}

function nameOf(output) {
  if (page.data?.classes.length) return page.data.classes[output];
  if (regression && page.model.size.outputs === 1) return page.data.target || "prediction";
  return page.data?.kind === "generation" ? `next: ${output}` : `output ${output}`;
}

const names = Array.from({ length: page.model.size.outputs }, (_, i) => nameOf(i));
const shortNumber = (value) => String(Number(value.toPrecision(4)));
const percent = (value) => `${(100 * value).toFixed(value > 0.9995 ? 0 : 1)} %`;
const shownAs = (value) => probabilities ? percent(value) : shortNumber(value);
const largestOf = (row) => row.reduce((best, value, i) => value > row[best] ? i : best, 0);

// A number as the model reads it, of one feature; tokens are read as they are.
function asRead(value, feature = 0) {
  if (page.model.size.tokens || page.data === null) return value;
  const { input_shift: shift, input_scale: scale } = page.data;
  const i = shift.length > 1 ? feature : 0, j = scale.length > 1 ? feature : 0;
  return Math.fround((value - shift[i]) * scale[j]);
}

// The last answer, in words and as bars.
function showAnswer(row) {
  if (row === null) {
    element("best").textContent = "–";
    element("sure").textContent = "";
    element("bars").replaceChildren();
    return;
  }
  const best = largestOf(row), single = row.length === 1;
  element("verdict").hidden = !probabilities && !single;
  element("best").textContent = probabilities ? names[best] : single ? shortNumber(row[0]) : "";
  element("sure").textContent = probabilities ? percent(row[best]) : single ? names[0] : "";
  const order = probabilities && row.length > MOST_BARS
    ? [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, MOST_BARS)
    : [...row.keys()].slice(0, MOST_BARS);
  const widest = probabilities ? 1 : Math.max(...row.map(Math.abs), 1e-30);
  const longest = Math.max(...order.map((i) => names[i].length));
  element("bars").style.setProperty("--names", `${longest + 1}ch`);
  element("bars").replaceChildren(...single ? [] : order.map((i) => bar(i, row[i], widest)));
  if (probabilities) element("bars").children[order.indexOf(best)]?.classList.add("best");
}

function bar(output, value, widest) {
  const item = document.createElement("li");
  const part = (name, words = "") => {
    const found = item.appendChild(document.createElement("span"));
    found.className = name;
    found.textContent = words;
    return found;
  };
  part("name", names[output]).title = names[output];
  const fill = part("track").appendChild(document.createElement("span"));
  fill.className = "fill";
  fill.style.width = `${100 * Math.min(1, Math.abs(value) / widest)}%`;
  part("value", shownAs(value));
  return item;
}

function showFacts(facts) {
  element("facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
    const pair = document.createElement("div");
    pair.appendChild(document.createElement("dt")).textContent = name;
    pair.appendChild(document.createElement("dd")).textContent = value;
    return pair;
  }));
}

const idle = () => new Promise((done) => setTimeout(done));

// Reads what it is given, in slices; `onAnswer(sample, y, last)` hears of every `every`-th answer,
// and of the last one of what there is to read. `onStart` hears where a new sequence begins.
class Reader {
  constructor(model, every, onAnswer, onStart = () => {}) {
    Object.assign(this, { model, every, onAnswer, onStart });
    this.turn = 0;  // what was given before a restart is not read any more
    this.seconds = 0;
    this.counted = 0;
    this.looked = 0;  // when the visitor last had a turn
    this.busy = false;
    this.restart();
  }

  restart() {
    this.turn += 1;
    this.queue = [];
    this.begin(0);
  }

  begin(place) {
    this.samples = 0;
    this.model.reset();
    this.onStart(place);
  }

  // Numbers as the model reads them; resolves when all are read.
  push(u) {
    this.model.check(u, u.length / this.model.size.sample);
    this.queue.push(u);
    if (!this.busy) this.working = this.work();
    return this.working;
  }

  // A new sequence, at this place of a longer one, once all that was given so far is read.
  startAgain(place) {
    this.queue.push(place);
  }

  get waiting() {
    return this.queue.reduce((sum, u) => sum + (u.length ?? 0), 0) / this.model.size.sample;
  }

  async work() {
    this.busy = true;
    while (this.queue.length) {
      const turn = this.turn, u = this.queue[0];
      if (typeof u === "number") {
        this.begin(this.queue.shift());
        continue;
      }
      const read = this.slice(u);
      if (turn !== this.turn) continue;
      if (read === u.length) this.queue.shift(); else this.queue[0] = u.subarray(read);
      if (this.queue.length && performance.now() - this.looked > SLICE) {
        await idle();
        this.looked = performance.now();
      }
    }
    this.busy = false;
  }

  slice(u) {
    const { sample } = this.model.size, start = performance.now(), turn = this.turn;
    let at = 0, now = start;
    this.began = start;
    this.aside = 0;  // milliseconds for what is done with answers, which is not the model's work
    while (at < u.length && turn === this.turn && now - start < SLICE) {
      const y = this.model.step(u, at);
      at += sample;
      this.samples += 1;
      this.counted += 1;
      const last = at >= u.length && this.queue.length <= 1;
      if (last || this.samples % this.every === 0) {
        const asked = performance.now();
        this.onAnswer(this.samples, y, last);
        this.aside += performance.now() - asked;
      }
      if (this.samples % 16 === 0) now = performance.now();
    }
    this.seconds += (performance.now() - start - this.aside) / 1000;
    this.began = null;
    if (this.counted > 4000) {  // the first samples, while a browser compiles, are soon forgotten
      this.seconds /= 2;
      this.counted /= 2;
    }
    return at;
  }

  // Microseconds of computing for one sample, the mean over the last few thousand.
  get cost() {
    const now = this.began ? (performance.now() - this.began - this.aside) / 1000 : 0;
    return this.counted ? 1e6 * (this.seconds + now) / this.counted : 0;
  }
}

function onDrop(take) {
  const drop = element("drop");
  let inside = 0;
  addEventListener("dragenter", (event) => { event.preventDefault(); inside += 1; drop.hidden = false; });
  addEventListener("dragleave", () => { inside -= 1; drop.hidden = inside > 0 ? drop.hidden : true; });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    inside = 0;
    drop.hidden = true;
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
  });
}

function onFile(id, take) {
  element(id).addEventListener("change", () => {
    const [file] = element(id).files;
    element(id).value = "";  // so that the same file can be chosen again
    if (file) take(file);
  });
}
