// The page: choices, pointer, keys, files, and the drawing of everything after each change.

const by = (id) => document.getElementById(id);
const plots = Object.fromEntries(
  ["eigenvalues", "kernel", "response", "discrete", "basis", "constraints"].map((id) => [
    id,
    makePlot(by(id)),
  ]),
);
// even sizes, close together where a pole more or less is seen
const SIZES = [2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 256];

let run = null;
let state = freshState();
let view = null;
let drag = null; // { plot, pole, below, offset } while a pole is held

// ---- after each change --------------------------------------------------------------------------

function update() {
  view = makeView(state, run, drag ? view.ranges : null);
  state.selected = view.selected;
  for (const n of state.moved.keys()) {
    if (n >= sizeOf(view.system.A)) state.moved.delete(n); // from an address for another size
  }
  drawEigenvalues(plots.eigenvalues, view);
  drawDiscretePoles(plots.discrete, view);
  drawKernel(plots.kernel, view);
  drawResponse(plots.response, view);
  drawBasis(plots.basis, view);
  drawConstraint(plots.constraints, view);
  showControls();
  showPole();
  by("code").textContent = pythonCode(state, run);
  rememberSoon();
}

// Browsers refuse addresses that change at every move of a pointer.
let remembering = 0;
function rememberSoon() {
  clearTimeout(remembering);
  remembering = setTimeout(remember, 200);
}

function remember() {
  const hash = toHash(state);
  if (hash !== location.hash.replace(/^#/, "")) {
    history.replaceState(null, "", `#${hash}`);
  }
}

function showControls() {
  const { choice } = state;
  const inRun = state.mode === "run";
  const start = STARTS[choice.init];
  by("start-choices").hidden = inRun;
  by("run-choices").hidden = !inRun;
  by("leave-run").hidden = !inRun;
  by("enter-run").hidden = inRun || !run;
  by("init").value = choice.init;
  by("init-formula").textContent = `A = ${start.formula}`;
  show("N", nearest(SIZES, choice.N), String(choice.N));
  show("imagScale", Math.log10(choice.imagScale), shortNumber(choice.imagScale));
  by("imagScale").disabled = !start.pairs;
  by("randomImag").checked = choice.randomImag && Boolean(start.law);
  by("randomImag").disabled = !start.law;
  by("randomReal").checked = choice.randomReal;
  by("B-choice").hidden = choice.init !== "legs";
  for (const name of ["B", "C", "seed"]) by(name).value = choice[name];
  show("dt", Math.log10(state.dt), shortNumber(state.dt));
  const lengths = lengthsOf(state, run);
  by("length").max = lengths.length - 1;
  show("length", lengths.indexOf(state.length), String(state.length));
  const lowRank = Boolean(view.system.P);
  for (const input of document.querySelectorAll('input[name="rule"]')) {
    input.checked = input.value === state.rule;
    input.disabled = lowRank && input.value !== "bilinear";
  }
  for (const input of document.querySelectorAll('input[name="constraint"]')) {
    input.checked = input.value === state.constraint;
  }
  by("rule-formula").textContent = RULES[state.rule].formula;
  by("constraint-formula").textContent = CONSTRAINTS[state.constraint].formula;
  by("logarithmic").checked = state.logarithmic;
  by("key-before").hidden = !view.before;
  by("key-share").hidden = !view.share;
  by("key-imag").hidden = !view.system.pairs;
  if (inRun) showRun();
  showTheme();
}

function showRun() {
  const layer = run.layers[state.layer];
  by("run-name").textContent = [run.name, run.task].filter(Boolean).join(", ");
  by("layer").max = run.layers.length;
  by("channel").max = layer.dt.length;
  show("layer", state.layer + 1, `${state.layer + 1} of ${run.layers.length}`);
  show("channel", state.channel + 1, `${state.channel + 1} of ${layer.dt.length}`);
  by("side-choice").hidden = layer.C.re.length < 2;
  by("side").value = state.side;
  const notes = run.length ? [`Sequences of up to ${run.length} samples.`] : [];
  notes.push("Dotted rings: before training. Small dots: the layer’s other channels.");
  if (layer.P) notes.push("Poles are those of the diagonal part; the low-rank term shifts them.");
  if (layer.kernel === "softmax") notes.push("The softmax’s normaliser is part of C.");
  by("run-note").textContent = notes.join(" ");
}

function show(id, value, text) {
  by(id).value = value;
  by(`${id}-shown`).textContent = text;
  by(id).setAttribute("aria-valuetext", text);
}

// The selected pole in numbers.
function showPole() {
  const { system, discrete, selected } = view;
  const [re, im] = at(system.A, selected);
  const bar = at(discrete.bar, selected);
  const samples = 1 / (Math.abs(re) * system.dt);
  const cycles = Math.abs(im) / (2 * Math.PI);
  const facts = [
    [
      re > 0 ? "grows e-fold in" : "time constant",
      `${shortNumber(1 / Math.abs(re))} = ${shortNumber(samples)} samples`,
    ],
    ["frequency", `${shortNumber(cycles)} = ${shortNumber(view.turns)}/sample`],
    ["|Ā|", shortNumber(cabs(bar), 5)],
    ["angle of Ā", `${shortNumber((Math.atan2(bar[1], bar[0]) * 180) / Math.PI)}°`],
  ];
  if (view.rate) {
    facts.splice(2, 0, ["at this rate", `${shortNumber(view.turns * view.rate)} Hz, ` +
      `${shortNumber((1000 * samples) / view.rate)} ms`]);
  }
  by("facts").replaceChildren(...facts.map(([name, value]) => {
    const [group, term, text] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
    term.textContent = name;
    text.textContent = value;
    group.append(term, text);
    return group;
  }));
  by("pole-name").textContent = `Pole ${selected + 1} / ${sizeOf(system.A)}`;
  for (const [id, x] of [["pole-re", re], ["pole-im", im]]) {
    if (document.activeElement !== by(id)) by(id).value = Number(x.toPrecision(5));
  }
  by("pole-im").disabled = !system.pairs;
  by("put-back").disabled = !state.moved.has(selected);
  const { stable } = CONSTRAINTS[state.constraint];
  const bound = stable ? "holds Re A below 0" : "lets Re A grow";
  by("constraint-hint").textContent = `raw = ${shortNumber(view.raw[selected])}, ${bound}`;
  by("warning").textContent = warnings().join(" ");
}

function warnings() {
  const { system, discrete } = view;
  const found = [];
  const growing = system.A.re.filter((x) => x > 0).length;
  if (growing) {
    const who = growing > 1 ? `${growing} poles grow` : "one pole grows";
    found.push(`Unstable: ${who}, and no response is ever steady.`);
  }
  const fast = system.A.im.filter((x) => Math.abs(x) * system.dt > Math.PI).length;
  if (fast) {
    const effect = state.rule === "bilinear"
      ? "the bilinear rule bends them below half a turn"
      : "they alias to slower ones";
    const who = `${fast} of ${sizeOf(system.A)} poles`;
    found.push(`${who} turn more than half a cycle per sample: ${effect}.`);
  }
  if (discrete.bar.re.some((x) => !Number.isFinite(x))) found.push("Some Ā overflow.");
  return found;
}

// ---- poles --------------------------------------------------------------------------------------

function movePole(n, [re, im]) {
  const held = [constrained(state.constraint, re), view.system.pairs ? im : 0];
  if (!held.every(Number.isFinite)) return;
  state.moved.set(n, held);
  update();
}

// From a place in either plot to an eigenvalue.
function eigenvalueAt(plot, [x, y]) {
  if (plot === plots.eigenvalues) return [x, y];
  return RULES[state.rule].undo(view.system.pairs ? [x, y] : [Math.max(x, 1e-9), 0], state.dt);
}

const polesOf = (plot) => (plot === plots.eigenvalues ? view.system.A : view.discrete.bar);

// The pole nearest to a point of the screen, among those a finger could mean.
function poleNear(plot, clientX, clientY) {
  const box = plot.svg.getBoundingClientRect();
  const poles = polesOf(plot);
  let best = { distance: 24 };
  for (let n = 0; n < sizeOf(poles); n++) {
    for (const below of view.system.pairs ? [false, true] : [false]) {
      const z = below ? conj(at(poles, n)) : at(poles, n);
      const [px, py] = plot.at(...z);
      const offset = [px + box.left - clientX, py + box.top - clientY];
      const distance = Math.hypot(...offset) - (n === state.selected ? 4 : 0);
      if (distance < best.distance) best = { plot, pole: n, below, offset, distance };
    }
  }
  return best.plot ? best : null;
}

function startDrag(plot, event) {
  const near = poleNear(plot, event.clientX, event.clientY);
  if (!near || (event.button ?? 0) !== 0) return;
  drag = near;
  state.selected = near.pole;
  plot.svg.classList.add("dragging");
  plot.svg.focus({ preventScroll: true });
  try {
    plot.svg.setPointerCapture(event.pointerId);
  } catch {
    // a pointer that is gone again; moves are heard by the window in any case
  }
  event.preventDefault();
  update();
}

function continueDrag(event) {
  if (!drag) return;
  const [dx, dy] = drag.offset;
  const [x, y] = drag.plot.under(event.clientX + dx, event.clientY + dy);
  movePole(drag.pole, eigenvalueAt(drag.plot, [x, drag.below ? -y : y]));
}

function endDrag() {
  if (!drag) return;
  drag.plot.svg.classList.remove("dragging");
  drag = null;
  update(); // axes may fit again
}

function putBack(n) {
  state.moved.delete(n);
  update();
}

function selectPole(n) {
  const size = sizeOf(view.system.A);
  state.selected = (n + size) % size;
  update();
}

function poleKey(plot, event) {
  const step = event.shiftKey ? 0.002 : 0.015;
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const n = state.selected;
  if (event.key in moves) {
    const [dx, dy] = moves[event.key];
    const [re, im] = at(polesOf(plot), n);
    const place = [
      plot.x.from(plot.x.to(re) + step * dx),
      plot.y.from(plot.y.to(im) + step * dy),
    ];
    movePole(n, eigenvalueAt(plot, place));
  } else if (event.key === "PageDown" || event.key === "]") selectPole(n + 1);
  else if (event.key === "PageUp" || event.key === "[") selectPole(n - 1);
  else if (event.key === "Home") selectPole(0);
  else if (event.key === "End") selectPole(-1);
  else if (event.key === "Delete" || event.key === "Backspace") putBack(n);
  else return;
  event.preventDefault();
  const [re, im] = at(view.system.A, state.selected).map((x) => shortNumber(x));
  by("spoken").textContent = `Pole ${state.selected + 1}: real ${re}, imaginary ${im}`;
}

function nearest(values, x) {
  const misses = values.map((value) => Math.abs(value - x));
  return misses.indexOf(Math.min(...misses));
}
