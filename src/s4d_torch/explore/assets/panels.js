// The six pictures of a system. A view holds all that is drawn:
//   system, discrete, moved (a Set of poles), selected, length, kernel, share (of the selected
//   pole), before (kernel and gain before poles were moved, or null), constraint, raw, startA (or
//   null), cloud (the poles of the other channels, or null), axes { logarithmic }.

const LABEL_TIME = "time t = l·dt (units of 1/A)";

function drawEigenvalues(plot, view) {
  const { A, pairs } = view.system;
  const range = view.ranges;
  const y = view.logarithmic
    ? symmetricLogScale(range.imag)
    : linearScale(-range.imag, range.imag);
  plot.begin(linearScale(range.left, range.right), y, {
    x: "Re A (1/time)",
    y: `Im A (rad/time)${view.logarithmic ? ", log." : ""}`,
  });
  plot.band(0, range.right, "unstable");
  plot.line([0, 0], [-range.imag, range.imag], "axis");
  plot.line([range.left, range.right], [0, 0], "axis");
  if (view.cloud) {
    for (let i = 0; i < sizeOf(view.cloud); i++) {
      plot.dot(...at(view.cloud, i), 1.6, "cloud");
      if (pairs) plot.dot(...conj(at(view.cloud, i)), 1.6, "cloud");
    }
  }
  if (view.startA) {
    for (let n = 0; n < sizeOf(view.startA); n++) {
      plot.dot(...at(view.startA, n), 6.5, "ghost");
      if (pairs) plot.dot(...conj(at(view.startA, n)), 6.5, "ghost");
    }
  }
  drawPoles(plot, view, A);
  plot.note("grows", "right");
  plot.end();
}

function drawDiscretePoles(plot, view) {
  const [width, height] = plot.size();
  const { reach } = view.ranges;
  // a circle stays a circle: the longer side shows more
  const wide = (width - MARGIN.left - MARGIN.right) / (height - MARGIN.top - MARGIN.bottom);
  const [x, y] = wide > 1 ? [reach * wide, reach] : [reach, reach / wide];
  plot.begin(linearScale(-x, x), linearScale(-y, y), { x: "Re Ā", y: "Im Ā" });
  const angles = Array.from({ length: 181 }, (_, i) => (i * Math.PI) / 90);
  plot.line(angles.map(Math.cos), angles.map(Math.sin), "circle");
  plot.line([-x, x], [0, 0], "axis");
  plot.line([0, 0], [-y, y], "axis");
  drawPoles(plot, view, view.discrete.bar);
  plot.end();
}

// Poles, their conjugates as rings, the selected one on top; the discs that catch fingers are
// wider than what is seen.
function drawPoles(plot, view, poles) {
  const { pairs } = view.system;
  const size = sizeOf(poles);
  const order = [...Array(size).keys()].filter((n) => n !== view.selected);
  if (view.selected < size) order.push(view.selected);
  for (const n of order) {
    const chosen = n === view.selected ? " chosen" : view.moved.has(n) ? " moved" : "";
    const radius = chosen ? 6 : size > 48 ? 3 : 4;
    if (pairs) plot.dot(...conj(at(poles, n)), radius, `conjugate${chosen}`);
    plot.dot(...at(poles, n), radius, `pole${chosen}`, ` data-pole="${n}"`);
  }
  for (const n of order) {
    plot.dot(...at(poles, n), 15, "grip", ` data-pole="${n}"`);
    if (pairs) plot.dot(...conj(at(poles, n)), 15, "grip", ` data-pole="${n}" data-below="1"`);
  }
}

function drawBasis(plot, view) {
  const span = view.length * view.system.dt;
  const points = 600;
  const t = Float64Array.from({ length: points }, (_, i) => (i * span) / (points - 1));
  const size = sizeOf(view.system.A);
  // fast ones would only be a grey blur
  const turns = (n) => (Math.abs(view.system.A.im[n]) * span) / (2 * Math.PI);
  const slow = [...Array(size).keys()].filter((n) => n !== view.selected && turns(n) < 8);
  const others = spread(slow.length, 6).map((i) => slow[i]);
  const curves = others.map((n) => basis(view.system, n, t));
  const chosen = view.selected < size ? basis(view.system, view.selected, t) : null;
  const largest = (v) => Math.max(0, ...v.map(Math.abs).filter(Number.isFinite));
  const most = Math.max(
    1e-6,
    chosen ? Math.max(largest(chosen.re), largest(chosen.im)) : 0,
    ...curves.map((v) => Math.min(largest(v.re), 1e3)),
  );
  plot.begin(linearScale(0, span), linearScale(-1.08 * most, 1.08 * most), {
    x: LABEL_TIME,
    y: "exp(tA) B",
  });
  plot.line([0, span], [0, 0], "axis");
  for (const curve of curves) plot.line(t, curve.re, "faint");
  if (chosen) {
    const envelope = magnitudes(chosen);
    plot.line(t, envelope, "envelope");
    plot.line(t, envelope.map((x) => -x), "envelope");
    if (view.system.pairs) plot.line(t, chosen.im, "second dashed");
    plot.line(t, chosen.re, "second");
  }
  plot.end();
}

function drawKernel(plot, view) {
  const { kernel: K, share, length } = view;
  const before = view.before?.kernel;
  const l = Float64Array.from({ length }, (_, i) => i);
  const finite = [...K, ...(before ?? [])].filter(Number.isFinite);
  const [low, high] = finite.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [0, 0]);
  const room = 0.06 * (high - low || 1);
  plot.begin(linearScale(0, length - 1), linearScale(low - room, high + room), {
    x: view.rate ? `sample l (of ${shortNumber(view.rate)} per second)` : "sample l",
    y: "kernel K",
  });
  plot.line([0, length - 1], [0, 0], "axis");
  if (before) plot.line(l, before, "before");
  if (share) plot.line(l, share, "second");
  plot.line(l, K, "main");
  if (length <= 64) for (let i = 0; i < length; i++) plot.dot(i, K[i], 2.4, "sample");
  if (finite.length < K.length) plot.note("grows beyond all bounds");
  plot.end();
}

function drawResponse(plot, view) {
  const { frequencies: f, gain, gainContinuous, before } = view;
  const seen = [...gain, ...(before?.gain ?? [])].filter((x) => Number.isFinite(x) && x > 0);
  const most = seen.reduce((a, b) => Math.max(a, b), 1e-12);
  const least = Math.max(seen.reduce((a, b) => Math.min(a, b), most), most * 1e-6);
  const [low, high] = [least / 1.5, most * 1.8];
  plot.begin(logScale(f[0], 0.5), logScale(low, Math.max(high, low * 30)), {
    x: "frequency (cycles per sample)",
    y: "gain |H|",
  });
  if (before) plot.line(before.frequencies, before.gain, "before");
  plot.line(f, gainContinuous, "third dashed");
  plot.line(f, gain, "main");
  const turns = view.turns;
  if (turns > f[0] && turns <= 0.5) plot.line([turns, turns], [low, high], "mark");
  plot.end();
}

// raw -> Re(A), with the poles on the curve.
function drawConstraint(plot, view) {
  const { A } = view.system;
  const { forward } = CONSTRAINTS[view.constraint];
  const raws = [...view.raw].filter(Number.isFinite);
  const low = Math.min(...raws, -1);
  const high = Math.max(...raws, 1);
  const room = 0.25 * (high - low);
  const [from, to] = [low - room, high + room];
  const x = Float64Array.from({ length: 241 }, (_, i) => from + ((to - from) * i) / 240);
  const y = x.map((raw) => -forward(raw));
  // where exp runs away, the poles decide what is shown
  const bottom = Math.max(Math.min(3 * Math.min(...A.re), -1), Math.min(...y));
  const top = Math.max(...y, 0) + 0.12 * (Math.max(...y, 0) - bottom);
  plot.begin(linearScale(from, to), linearScale(bottom, top), {
    x: "stored parameter (raw)",
    y: "Re A (1/time)",
  });
  plot.line([from, to], [0, 0], "axis");
  plot.line([0, 0], [bottom, top], "axis");
  plot.line(x, y, "main");
  for (let n = 0; n < sizeOf(A); n++) {
    if (n !== view.selected) plot.dot(view.raw[n], A.re[n], 3.5, "pole");
  }
  if (view.selected < sizeOf(A)) {
    const n = view.selected;
    plot.line([view.raw[n], view.raw[n], from], [bottom, A.re[n], A.re[n]], "mark");
    plot.dot(view.raw[n], A.re[n], 6, "pole chosen");
  }
  plot.end();
}

// At most `count` of the numbers below `size`, evenly spread, the ends included.
function spread(size, count) {
  if (size <= count) return [...Array(size).keys()];
  return Array.from({ length: count }, (_, i) => Math.round((i * (size - 1)) / (count - 1)));
}
