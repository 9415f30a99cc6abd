// The parameters of a trained run, as `s4d explore --run RUN --json` writes them. Every number is
// checked when the file is read: what is drawn later can rely on it.

const RUN_FORMAT = "s4d_torch explore";
const RUN_VERSION = 1;

// The run in a text of JSON; an Error that says what is wrong and what to do.
function readRun(text) {
  let run;
  try {
    run = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON (${error.message}). ${HOW_TO_WRITE}`);
  }
  if (run === null || typeof run !== "object" || run.format !== RUN_FORMAT) {
    const why = `"format" is not "${RUN_FORMAT}"`;
    throw new Error(`This JSON does not hold a run: ${why}. ${HOW_TO_WRITE}`);
  }
  if (run.version !== RUN_VERSION) {
    throw new Error(
      `This file has version ${JSON.stringify(run.version)}, this page reads ${RUN_VERSION}: ` +
        "write page and file with the same release of s4d-torch.",
    );
  }
  if (!Array.isArray(run.layers) || run.layers.length === 0) {
    throw new Error(`This run has no "layers" with state spaces. ${HOW_TO_WRITE}`);
  }
  if (run.length !== undefined && !(Number.isInteger(run.length) && run.length > 0)) {
    const why = `"length" is ${JSON.stringify(run.length)}, not a number of samples`;
    throw new Error(`This file is damaged: ${why}. ${HOW_TO_WRITE}`);
  }
  run.layers.forEach((layer, i) => checkLayer(layer, `Layer ${i + 1}`));
  return run;
}

const HOW_TO_WRITE = "Write one with: s4d explore --run RUN --json";

function checkLayer(layer, where) {
  const wrong = (what) => new Error(`${where} of this file is damaged: ${what}. ${HOW_TO_WRITE}`);
  if (layer === null || typeof layer !== "object") throw wrong("it is no object");
  if (!Object.hasOwn(RULES, layer.discretization)) {
    throw wrong(`unknown discretization ${JSON.stringify(layer.discretization)}`);
  }
  if (!Object.hasOwn(CONSTRAINTS, layer.constraint)) {
    throw wrong(`unknown constraint ${JSON.stringify(layer.constraint)}`);
  }
  if (typeof layer.pairs !== "boolean") throw wrong('"pairs" is not true or false');
  const modes = layer.A?.re?.[0]?.length;
  const sets = layer.A?.re?.length;
  const channels = layer.dt?.length;
  if (!modes || !sets || !channels || channels % sets) {
    throw wrong('"A" needs rows of modes, one for every channel in "dt" or shared evenly');
  }
  const kernels = layer.C?.re?.length;
  if (kernels !== 1 && kernels !== 2) throw wrong('"C" needs one kernel, or two');
  const shapes = { A: [sets, modes], B: [sets, modes], C: [kernels, channels, modes] };
  if (layer.P) shapes.P = [sets, layer.P.re?.[0]?.length, modes];
  for (const [name, shape] of Object.entries(shapes)) {
    for (const part of ["re", "im"]) {
      if (!hasShape(layer[name]?.[part], shape)) {
        throw wrong(`"${name}.${part}" should be finite numbers of shape ${shape.join(" × ")}`);
      }
    }
  }
  if (!hasShape(layer.raw, [sets, modes])) {
    throw wrong(`"raw" should be finite numbers of shape ${sets} × ${modes}`);
  }
  if (!hasShape(layer.dt, [channels]) || layer.dt.some((dt) => dt <= 0)) {
    throw wrong('"dt" should be numbers above 0');
  }
  const start = layer.start;
  if (start && !(hasShape(start.re, [sets, modes]) && hasShape(start.im, [sets, modes]))) {
    throw wrong(`"start" should have the shape of "A", ${sets} × ${modes}`);
  }
}

function hasShape(x, [size, ...inner]) {
  if (!Array.isArray(x) || x.length !== size) return false;
  return inner.length ? x.every((row) => hasShape(row, inner)) : x.every(Number.isFinite);
}

// One channel of one layer as a system; `side` 1 is the kernel that looks ahead.
function channelOf(run, layerIndex, channel, side) {
  const layer = run.layers[layerIndex];
  const set = Math.floor((channel * layer.A.re.length) / layer.dt.length);
  const row = (x, ...place) => ({
    re: Float64Array.from(place.reduce((part, i) => part[i], x.re)),
    im: Float64Array.from(place.reduce((part, i) => part[i], x.im)),
  });
  return {
    A: row(layer.A, set),
    B: row(layer.B, set),
    C: row(layer.C, Math.min(side, layer.C.re.length - 1), channel),
    P: layer.P ? layer.P.re[set].map((_, rank) => row(layer.P, set, rank)) : null,
    raw: Float64Array.from(layer.raw[set]),
    startA: layer.start ? row(layer.start, set) : null,
    pairs: layer.pairs,
    dt: layer.dt[channel],
    set,
  };
}

// Poles of all channels of a layer, at most `most` of them.
function cloudOf(layer, most) {
  const re = layer.A.re.flat();
  const im = layer.A.im.flat();
  const every = Math.max(1, Math.ceil(re.length / most));
  const kept = (x) => Float64Array.from(x.filter((_, i) => i % every === 0));
  return { re: kept(re), im: kept(im) };
}
