// Axes, ticks and marks as SVG. A plot is drawn anew in whole whenever something changes: with a
// few hundred marks that takes about a millisecond, and nothing on the screen can be stale.

const MARGIN = { left: 60, right: 12, top: 10, bottom: 40 };

// ---- scales: a value to a place between 0 and 1, back, and the ticks between --------------------

function linearScale(low, high) {
  const span = high - low || 1;
  return {
    low,
    high,
    to: (x) => (x - low) / span,
    from: (p) => low + p * span,
    ticks: (count) => niceTicks(low, high, count),
  };
}

function logScale(low, high) {
  const inner = linearScale(Math.log10(low), Math.log10(high));
  return {
    low,
    high,
    to: (x) => inner.to(Math.log10(x)),
    from: (p) => 10 ** inner.from(p),
    ticks: (count) => decades(low, high, count),
  };
}

// Linear around zero, logarithmic further out: shows eigenvalues from 0 to thousands, both signs.
function symmetricLogScale(most) {
  const inner = linearScale(-Math.asinh(2 * most), Math.asinh(2 * most));
  return {
    low: -most,
    high: most,
    to: (x) => inner.to(Math.asinh(2 * x)),
    from: (p) => Math.sinh(inner.from(p)) / 2,
    ticks(count) {
      const above = decades(1, most, Math.max(2, Math.floor(count / 2)));
      return [...above.map((x) => -x).reverse(), 0, ...above];
    },
  };
}

function niceTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((x) => x * power).find((x) => x >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    ticks.push(k === 0 ? 0 : k * step);
  }
  return ticks;
}

function decades(low, high, count) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(count, 1)));
  const ticks = [];
  for (let k = first; k <= last; k += every) ticks.push(10 ** k);
  return ticks;
}

// ---- numbers for people -------------------------------------------------------------------------

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function shortNumber(x, digits = 3) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "–" : x < 0 ? "−∞" : "∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  let text;
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
    const power = String(Math.abs(exponent)).replace(/\d/g, (d) => SUPERSCRIPT[d]);
    const lead = String(Number(mantissa));
    const ten = `10${exponent < 0 ? "⁻" : ""}${power}`;
    text = lead === "1" ? ten : lead === "-1" ? `-${ten}` : `${lead}·${ten}`;
  } else {
    text = String(Number(x.toPrecision(digits)));
  }
  return text.replace("-", "−");
}

// ---- drawing ------------------------------------------------------------------------------------

// A plot on an <svg>; `begin` sets the axes and starts the picture, `end` shows it.
function makePlot(svg) {
  let parts = [];
  let area = null;
  const plot = { svg, x: null, y: null };

  plot.size = () => {
    const box = svg.getBoundingClientRect();
    return [Math.max(box.width, 160), Math.max(box.height, 120)];
  };

  plot.begin = (x, y, labels) => {
    const [width, height] = plot.size();
    area = {
      left: MARGIN.left,
      right: width - MARGIN.right,
      top: MARGIN.top,
      bottom: height - MARGIN.bottom,
    };
    Object.assign(plot, { x, y, area });
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const clip = `${svg.id}-area`;
    parts = [
      `<clipPath id="${clip}"><rect x="${area.left}" y="${area.top}" ` +
        `width="${area.right - area.left}" height="${area.bottom - area.top}"/></clipPath>`,
    ];
    grid(labels);
    parts.push(`<g clip-path="url(#${clip})">`);
  };

  // labels: x, y, and columns or rows for how many ticks there may be
  function grid(labels) {
    const [width, height] = [area.right - area.left, area.bottom - area.top];
    for (const tick of plot.x.ticks(Math.max(2, Math.floor(width / 70)))) {
      const [px] = plot.at(tick, plot.y.low);
      if (px < area.left - 0.5 || px > area.right + 0.5) continue;
      const name = shortNumber(tick);
      parts.push(`<path class="grid" d="M${px.toFixed(1)} ${area.top}V${area.bottom}"/>`);
      parts.push(`<text class="tick" x="${px.toFixed(1)}" y="${area.bottom + 15}">${name}</text>`);
    }
    for (const tick of plot.y.ticks(Math.max(2, Math.floor(height / 42)))) {
      const [, py] = plot.at(plot.x.low, tick);
      if (py < area.top - 0.5 || py > area.bottom + 0.5) continue;
      const [name, mid] = [shortNumber(tick), (py + 4).toFixed(1)];
      parts.push(`<path class="grid" d="M${area.left} ${py.toFixed(1)}H${area.right}"/>`);
      parts.push(`<text class="tick left" x="${area.left - 6}" y="${mid}">${name}</text>`);
    }
    const middle = (area.left + area.right) / 2;
    const side = (area.top + area.bottom) / 2;
    parts.push(`<text class="label" x="${middle}" y="${area.bottom + 33}">${labels.x}</text>`);
    parts.push(
      `<text class="label" transform="translate(13 ${side}) rotate(-90)">${labels.y}</text>`,
    );
  }

  plot.at = (x, y) => [
    area.left + plot.x.to(x) * (area.right - area.left),
    area.bottom - plot.y.to(y) * (area.bottom - area.top),
  ];

  // The values under a point of the screen.
  plot.under = (clientX, clientY) => {
    const box = svg.getBoundingClientRect();
    const px = (clientX - box.left - area.left) / (area.right - area.left);
    const py = (area.bottom - (clientY - box.top)) / (area.bottom - area.top);
    return [plot.x.from(px), plot.y.from(py)];
  };

  plot.line = (xs, ys, style) => {
    const d = pathOf(plot, xs, ys);
    if (d) parts.push(`<path class="line ${style}" d="${d}"/>`);
  };

  plot.dot = (x, y, radius, style, extra = "") => {
    const [px, py] = plot.at(x, y);
    if (!Number.isFinite(px) || !Number.isFinite(py)) return;
    const place = `cx="${px.toFixed(1)}" cy="${py.toFixed(1)}"`;
    parts.push(`<circle class="${style}" ${place} r="${radius}"${extra}/>`);
  };

  plot.band = (x0, x1, style) => {
    const [[left], [right]] = [plot.at(x0, plot.y.low), plot.at(x1, plot.y.low)];
    const width = Math.max(right - left, 0);
    const height = area.bottom - area.top;
    parts.push(
      `<rect class="${style}" x="${left}" y="${area.top}" width="${width}" height="${height}"/>`,
    );
  };

  plot.note = (text, place = "right") => {
    const x = place === "right" ? area.right - 6 : area.left + 6;
    parts.push(`<text class="note ${place}" x="${x}" y="${area.top + 15}">${text}</text>`);
  };

  plot.end = () => {
    svg.innerHTML = `${parts.join("")}</g>`;
  };

  return plot;
}

// The path through the points, broken where a value is not finite. Of many points within a pixel
// only the extremes are drawn: they make the same picture.
function pathOf(plot, xs, ys) {
  const columns = Math.ceil(plot.area.right - plot.area.left);
  const thinned = xs.length > 3 * columns ? extremes(ys, columns) : null;
  const count = thinned ? thinned.length : xs.length;
  let d = "";
  let pen = "M";
  for (let k = 0; k < count; k++) {
    const i = thinned ? thinned[k] : k;
    const [px, py] = plot.at(xs[i], ys[i]);
    if (!Number.isFinite(px) || !Number.isFinite(py)) {
      pen = "M";
      continue;
    }
    // far outside, renderers lose precision; the clip hides it anyway
    d += `${pen}${px.toFixed(1)} ${Math.min(Math.max(py, -2000), 4000).toFixed(1)}`;
    pen = "L";
  }
  return d;
}

function extremes(ys, columns) {
  const kept = [];
  for (let c = 0; c < columns; c++) {
    const first = Math.floor((c * ys.length) / columns);
    const last = Math.floor(((c + 1) * ys.length) / columns);
    let [low, high] = [first, first];
    for (let i = first; i < last; i++) {
      if (ys[i] < ys[low]) low = i;
      if (ys[i] > ys[high]) high = i;
    }
    kept.push(...(low <= high ? [low, high] : [high, low]));
  }
  return kept;
}
