"use strict";
// Drawings as the pixels of a training set: what was drawn is brought to the size and the place
// that its pictures have.

// ink (size x size, 0 to 1) -> (side x side, 0 to 1). The drawing fills the part `box` of the
// side, with its middle in the middle; with box < 1 that is the centre of mass, as MNIST has it.
function fittedPixels(ink, size, side, box) {
  const bounds = inkBounds(ink, size);
  if (bounds === null) return new Float64Array(side * side);
  const { left, top, right, bottom } = bounds;
  const scale = Math.max(right - left, bottom - top) / (box * side);  // of the pad, for a pixel
  let [x, y] = [(left + right) / 2, (top + bottom) / 2];
  if (box < 1) [x, y] = inkCentre(ink, size);
  return resizedPixels(ink, size, side, scale, x, y);
}

function inkBounds(ink, size) {
  let left = size, top = size, right = 0, bottom = 0;
  ink.forEach((value, i) => {
    if (value < 0.1) return;
    const x = i % size, y = Math.floor(i / size);
    left = Math.min(left, x);
    right = Math.max(right, x + 1);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y + 1);
  });
  return right ? { left, top, right, bottom } : null;
}

function inkCentre(ink, size) {
  let mass = 0, x = 0, y = 0;
  ink.forEach((value, i) => {
    mass += value;
    x += value * (i % size + 0.5);
    y += value * (Math.floor(i / size) + 0.5);
  });
  return [x / mass, y / mass];
}

// Means over fields of the pad, by a grid of points in each.
const POINTS = 8;
function resizedPixels(ink, size, side, scale, x, y) {
  const found = new Float64Array(side * side);
  for (let i = 0; i < found.length; i++) {
    const column = i % side - side / 2, row = Math.floor(i / side) - side / 2;
    let sum = 0;
    for (let p = 0; p < POINTS * POINTS; p++) {
      const px = Math.floor(x + (column + (p % POINTS + 0.5) / POINTS) * scale);
      const py = Math.floor(y + (row + (Math.floor(p / POINTS) + 0.5) / POINTS) * scale);
      if (px >= 0 && px < size && py >= 0 && py < size) sum += ink[py * size + px];
    }
    found[i] = sum / (POINTS * POINTS);
  }
  return found;
}
