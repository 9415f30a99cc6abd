"use strict";
// A field for numbers, a line for each sample, or for text.

const EXAMPLE = 200;  // samples

// Lines of numbers -> {values, samples}; an error names the line. A first line of names may put
// the columns into another order.
function parseNumbers(text, width, channels) {
  const lines = text.split(/\r?\n/).map((line, i) => [i + 1, line.trim()]).filter(([, line]) => line);
  let order = null, columns = width;
  const values = [];
  lines.forEach(([number, line], row) => {
    const cells = line.split(/[;,\t]\s*|\s+/).filter((cell, i, all) => cell || i < all.length - 1);
    if (row === 0 && cells.some((cell) => Number.isNaN(Number(cell)))) {
      order = channels.length ? channels.map((name) => columnOf(name, cells)) : null;
      columns = cells.length;
      if (order === null && columns !== width)
        throw new Error(`line ${number} names ${columns} columns; a sample is ${width} numbers`);
      return;
    }
    if (cells.length !== columns)
      throw new Error(`line ${number} has ${cells.length} values, expected ${columns}`);
    for (let i = 0; i < width; i++) {
      const cell = cells[order ? order[i] : i], value = cell === "" ? NaN : Number(cell);
      if (!Number.isFinite(value)) throw new Error(`line ${number}: "${cell}" is no finite number`);
      values.push(value);
    }
  });
  return { values, samples: values.length / width };
}

function columnOf(name, cells) {
  const found = cells.indexOf(name);
  if (found < 0) throw new Error(`no column is called "${name}"; there are ${cells.join(", ")}`);
  return found;
}

function startView(model) {
  const { sample, inputs, tokens, towers } = model.size, text = page.view.kind === "text";
  const field = element("field"), channels = towers === 1 ? page.data?.channels ?? [] : [];
  const history = new History(names.length, 20000);
  const strip = new Strip(element("chart"), element("keys"), history,
    { names, probabilities, unit: text ? "bytes" : "samples" });
  const view = { history, rows: [] };
  let latest = null, asked = 0;

  const reader = new Reader(model, 1, (at, y, last) => {
    latest = meaning(y);
    history.add(at, latest);
    view.rows.push([...y]);
    if (!last) return;
    showAnswer(latest);
    showFacts({ samples: String(at), computing: `${reader.cost.toFixed(1)} µs per sample` });
    strip.show(Math.min(1, at - 1), Math.max(at, 2));
  });

  function given() {
    if (text) {
      const bytes = new TextEncoder().encode(field.value);
      return { values: [...bytes], samples: bytes.length };
    }
    return parseNumbers(field.value, sample, channels);
  }

  async function read() {
    fail("");
    history.clear();
    view.rows = [];
    reader.restart();
    showAnswer(latest = null);
    try {
      const { values, samples } = given();
      if (!samples) return strip.show(0, 1);
      await reader.push(Float64Array.from(values, (value, i) => asRead(value, i % inputs)));
    } catch (error) {
      fail(error.message);
    }
  }

  // Slow waves in the unit of the data, or tokens one after the other: nothing but an example.
  function example() {
    const { input_shift: shift = [0], input_scale: scale = [1] } = page.data ?? {};
    const of = (array, i) => array[array.length > 1 ? i : 0];
    const line = (t) => Array.from({ length: sample }, (_, i) => tokens
      ? (7 * t + 3 * i) % tokens
      : Number((of(shift, i % inputs)
        + Math.sin(t / (8 + 3 * i) + i) / (of(scale, i % inputs) || 1)).toPrecision(5)));
    field.value = text ? "A sentence that nobody has labelled."
      : Array.from({ length: EXAMPLE }, (_, t) => line(t).join(" ")).join("\n");
    return read();
  }

  async function takeTable(file) {
    field.value = await file.text();
    return read();
  }

  async function copy() {
    const rows = history.rows.map((row) => [...row].join(","));
    await navigator.clipboard.writeText([names.map((name) => JSON.stringify(name)).join(","), ...rows].join("\n"))
      .then(() => { element("copy").textContent = "Copied"; })
      .catch(() => fail("the browser does not let this page write to the clipboard"));
    setTimeout(() => { element("copy").textContent = "Copy answers"; }, 1500);
  }

  const what = tokens ? `a token, a whole number from 0 to ${tokens - 1}` : sample / towers === 1
    ? "a number" : `${sample / towers} numbers`;
  const named = channels.length && channels.length < 12 ? ` (${channels.join(", ")})` : "";
  element("numbers").hidden = false;
  element("field-name").textContent = text ? "Text" : "Samples";
  element("chart-name").textContent = probabilities ? "Probabilities" : "Outputs";
  element("numbers-hint").textContent = (text ? "The model reads the bytes of the text. "
    : `A line for each sample: ${what}${named}${towers === 2 ? " of each of the two sequences" : ""}, `
      + "apart by spaces, commas or tabs. ") + "Nothing leaves this page.";
  field.addEventListener("input", () => {
    const turn = ++asked;
    setTimeout(() => { if (turn === asked) read(); }, 150);
  });
  element("example").addEventListener("click", example);
  element("copy").addEventListener("click", copy);
  onFile("table", takeTable);
  onDrop(takeTable);
  strip.show(0, 1);
  return Object.assign(view, { read, example, takeTable, reader, strip });
}
