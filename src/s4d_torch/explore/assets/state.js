// What the user has chosen, what follows from it, and how an address carries it.

const DEFAULTS = {
  mode: "start",
  choice: {
    init: "legs",
    N: 32,
    imagScale: 1,
    randomImag: false,
    randomReal: false,
    B: "ones",
    C: "normal",
    seed: 0,
  },
  dt: 0.01,
  rule: "bilinear",
  constraint: "exp",
  length: 512,
  selected: -1, // the page chooses one that is easy to see
  logarithmic: true,
  theme: "auto",
  layer: 0,
  channel: 0,
  side: 0,
};

const LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096];
const LONGEST = 16384; // more samples would make every drag slow
const LIMITS = { N: [2, 256], dt: [1e-4, 1], imagScale: [0.01, 100], seed: [0, 4294967295] };

const freshState = () => ({ ...DEFAULTS, choice: { ...DEFAULTS.choice }, moved: new Map() });

// The samples that can be shown: of a run also as many as its sequences have.
function lengthsOf(state, run) {
  const own = state.mode === "run" && run.length ? [Math.min(run.length, LONGEST)] : [];
  return [...new Set([...LENGTHS, ...own])].sort((a, b) => a - b);
}

const between = (x, [low, high]) => Math.min(Math.max(x, low), high);

// The system before poles were moved, with Re(A) as the constraint stores it.
function unmoved(state, run) {
  const inRun = state.mode === "run";
  const base = inRun
    ? channelOf(run, state.layer, state.channel, state.side)
    : makeStart(state.choice, state.dt);
  if (inRun && run.layers[state.layer].dt_scales === "decay") {
    // another dt leaves the angles per sample
    const ratio = run.layers[state.layer].dt[state.channel] / state.dt;
    base.A.im = base.A.im.map((im) => ratio * im);
  }
  const asTrained = inRun && state.constraint === run.layers[state.layer].constraint;
  if (!asTrained) {
    base.raw = base.A.re.map((re) => CONSTRAINTS[state.constraint].inverse(-re));
    base.A.re = base.A.re.map((re) => constrained(state.constraint, re));
  }
  return { ...base, dt: state.dt, rule: state.rule };
}

// All that is drawn. `kept` are the ranges of the axes to keep, while a pole is dragged.
function makeView(state, run, kept = null) {
  const before = unmoved(state, run);
  const system = { ...before, A: { re: before.A.re.slice(), im: before.A.im.slice() } };
  const raw = before.raw.slice();
  for (const [n, [re, im]] of state.moved) {
    if (n >= sizeOf(system.A)) continue;
    put(system.A, n, [constrained(state.constraint, re), system.pairs ? im : 0]);
    raw[n] = CONSTRAINTS[state.constraint].inverse(-re);
  }
  const hasMoved = state.moved.size > 0;
  const discrete = discretize(system);
  const last = sizeOf(system.A) - 1;
  const selected =
    state.selected < 0 ? visiblePole(system, state.length) : Math.min(state.selected, last);
  const cloud = state.mode === "run" ? cloudOf(run.layers[state.layer], 1500) : null;
  const frequencies = frequencyGrid(system, state.length);
  const view = {
    ...{ system, discrete, raw, selected, cloud, frequencies },
    moved: new Set(state.moved.keys()),
    length: state.length,
    constraint: state.constraint,
    logarithmic: state.logarithmic,
    rate: state.mode === "run" ? run.sample_rate : null,
    startA: state.mode === "run" ? before.startA : hasMoved ? before.A : null,
    turns: (Math.abs(system.A.im[selected]) * system.dt) / (2 * Math.PI),
    before: null,
  };
  Object.assign(view, behaviour(system, discrete, view));
  if (hasMoved) view.before = behaviourBefore(state, before);
  view.ranges = kept ?? rangesOf(view);
  return view;
}

// The pole that comes nearest to four turns within what is shown.
function visiblePole({ A, dt }, length) {
  const turns = [...A.im].map((im) => (Math.abs(im) * dt * length) / (2 * Math.PI));
  const misses = turns.map((x) => Math.abs(Math.log((x + 0.1) / 4)));
  return misses.indexOf(Math.min(...misses));
}

// The same as long as only poles are moved: kept, which halves the work of a drag.
let keptBefore = { key: "", value: null };

function behaviourBefore(state, system) {
  const { mode, choice, dt, rule, constraint, length, layer, channel, side } = state;
  const key = JSON.stringify([mode, choice, dt, rule, constraint, length, layer, channel, side]);
  if (key !== keptBefore.key) {
    const frequencies = frequencyGrid(system, length);
    const value = behaviour(system, discretize(system), { length, frequencies, selected: 0 });
    keptBefore = { key, value: { ...value, frequencies } };
  }
  return keptBefore.value;
}

function behaviour(system, discrete, { length, frequencies, selected }) {
  if (system.P) {
    return {
      kernel: lowRankKernel(system, length),
      share: null, // the low-rank term couples the modes: none has a share of its own
      gain: magnitudes(lowRankResponse(system, frequencies)),
      gainContinuous: magnitudes(lowRankContinuousResponse(system, frequencies)),
    };
  }
  return {
    kernel: kernel(system, discrete, length),
    share: kernel(system, discrete, length, [selected]),
    gain: magnitudes(response(system, discrete, frequencies)),
    gainContinuous: magnitudes(continuousResponse(system, frequencies)),
  };
}

// Evenly spaced on a logarithmic axis, and each pole's own frequency: peaks are narrow.
function frequencyGrid(system, length) {
  const low = 0.1 / length;
  const even = Array.from({ length: 240 }, (_, i) => low * (0.5 / low) ** (i / 239));
  const own = [];
  for (let n = 0; n < sizeOf(system.A); n++) {
    const angle = Math.abs(system.A.im[n]) * system.dt;
    const bent = system.rule === "bilinear" ? 2 * Math.atan(angle / 2) : angle;
    own.push(angle / (2 * Math.PI), bent / (2 * Math.PI));
  }
  even[239] = 0.5;
  const inside = own.filter((f) => f > low && f < 0.5);
  return Float64Array.from([...even, ...inside]).sort();
}

function rangesOf({ system, discrete, startA, cloud }) {
  const sets = [system.A, startA, cloud].filter(Boolean);
  const most = (part) =>
    sets.reduce((m, v) => v[part].reduce((a, x) => Math.max(a, Math.abs(x)), m), 0);
  const real = Math.max(most("re"), 0.1);
  const growing = sets.reduce((m, v) => v.re.reduce((a, x) => Math.max(a, x), m), 0);
  const sizes = [...magnitudes(discrete.bar)].filter(Number.isFinite);
  return {
    left: -1.35 * real,
    right: Math.max(0.35 * real, 1.2 * growing), // a pole that grows is seen as well
    imag: Math.max(1.4 * most("im"), 5),
    reach: Math.max(1.15, 1.1 * Math.max(0, ...sizes)), // of the discrete poles
  };
}

// ---- the address --------------------------------------------------------------------------------

// Only what differs from the defaults: links stay short.
function toHash(state) {
  const parts = [];
  const keep = (name, value, usual) => {
    if (value !== usual) parts.push(`${name}=${value}`);
  };
  if (state.mode === "run") {
    parts.push(`layer=${state.layer + 1}`, `channel=${state.channel + 1}`);
    keep("side", state.side, 0);
    parts.push(`dt=${state.dt}`, `rule=${state.rule}`, `constraint=${state.constraint}`);
    parts.push(`length=${state.length}`);
  } else {
    for (const [name, usual] of Object.entries(DEFAULTS.choice)) {
      keep(name, state.choice[name], usual);
    }
    for (const name of ["dt", "rule", "constraint"]) keep(name, state[name], DEFAULTS[name]);
  }
  if (state.mode !== "run") keep("length", state.length, DEFAULTS.length);
  for (const name of ["selected", "logarithmic", "theme"]) {
    keep(name, state[name], DEFAULTS[name]);
  }
  const short = (z) => z.map((x) => Number(x.toPrecision(9))).join(":");
  const places = [...state.moved].map(([n, z]) => `${n}:${short(z)}`);
  if (places.length) parts.push(`moved=${places.join(";")}`);
  return parts.join("&");
}

// A state from an address; what is not understood is left at its default.
function fromHash(hash, run) {
  const given = new Map(
    hash.replace(/^#/, "").split("&").filter((p) => p.includes("=")).map((p) => p.split("=")),
  );
  const state = freshState();
  const number = (name, limits, fallback) => {
    const x = Number(given.get(name));
    return given.get(name) && Number.isFinite(x) ? between(x, limits) : fallback;
  };
  const oneOf = (name, options, fallback) =>
    options.includes(given.get(name)) ? given.get(name) : fallback;
  const { choice } = state;
  choice.init = oneOf("init", Object.keys(STARTS), choice.init);
  choice.N = Math.max(2, 2 * Math.round(number("N", LIMITS.N, choice.N) / 2));
  choice.imagScale = number("imagScale", LIMITS.imagScale, choice.imagScale);
  choice.seed = Math.round(number("seed", LIMITS.seed, choice.seed));
  choice.randomImag = given.get("randomImag") === "true";
  choice.randomReal = given.get("randomReal") === "true";
  choice.B = oneOf("B", ["ones", "hippo", "hippo-half"], choice.B);
  choice.C = oneOf("C", ["normal", "ones"], choice.C);
  if (run && !given.has("init")) {
    const [layer, channel] = ["layer", "channel"].map((name) => number(name, [1, 1e6], 1) - 1);
    enterRun(state, run, layer, channel);
  }
  state.side = number("side", [0, 1], 0);
  state.dt = number("dt", [1e-6, 10], state.dt);
  state.rule = oneOf("rule", Object.keys(RULES), state.rule);
  if (state.mode === "run" && run.layers[state.layer].P) state.rule = "bilinear";
  state.constraint = oneOf("constraint", Object.keys(CONSTRAINTS), state.constraint);
  const length = Number(given.get("length"));
  if (lengthsOf(state, run).includes(length)) state.length = length;
  state.selected = Math.round(number("selected", [-1, 1e6], -1));
  state.logarithmic = given.get("logarithmic") !== "false";
  state.theme = oneOf("theme", ["auto", "light", "dark"], "auto");
  for (const place of (given.get("moved") ?? "").split(";")) {
    const [n, re, im] = place.split(":").map(Number);
    const valid = place && n >= 0 && Number.isInteger(n) && Number.isFinite(re + im);
    if (valid) state.moved.set(n, [re, im]);
  }
  return state;
}

// Show a channel of a run as it was trained.
function enterRun(state, run, layer, channel) {
  if (state.mode !== "run" && run.length) state.length = Math.min(run.length, LONGEST);
  state.mode = "run";
  state.layer = Math.floor(between(layer, [0, run.layers.length - 1]));
  const chosen = run.layers[state.layer];
  state.channel = Math.floor(between(channel, [0, chosen.dt.length - 1]));
  state.dt = chosen.dt[state.channel];
  state.rule = chosen.discretization;
  state.constraint = chosen.constraint;
  state.side = Math.min(state.side, chosen.C.re.length - 1);
  state.moved = new Map();
}
