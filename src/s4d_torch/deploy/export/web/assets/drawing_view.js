"use strict";
// A pad to draw on, read pixel by pixel while it is drawn.

function startView(model) {
  const { side, brightest, box, order } = page.view;
  const history = new History(names.length, side * side + 1);
  const strip = new Strip(element("chart"), element("keys"), history,
    { names, probabilities, unit: "pixels" });
  const pad = element("pad"), seen = element("seen"), size = pad.width;
  const pen = pad.getContext("2d", { willReadFrequently: true });
  const small = seen.getContext("2d");
  const view = { history, answer: null };
  let latest = null, waiting = false, last = null;

  const reader = new Reader(model, 1, (sample, y, end) => {
    latest = meaning(y);
    history.add(sample, latest);
    if (!end) return;
    view.answer = [...y];
    showAnswer(latest);
    showFacts({ computing: `${reader.cost.toFixed(1)} µs per pixel`,
      "a drawing": `${(reader.cost * side * side / 1000).toFixed(1)} ms` });
    strip.show(0, side * side);
  });

  // Pixels (side x side), row by row, from 0 to 1.
  function read(pixels) {
    showSeen(pixels);
    history.clear();
    reader.restart();
    const places = order.length ? order : pixels.map((_, i) => i);
    return reader.push(Float32Array.from(places, (i) => asRead(Math.round(pixels[i] * brightest))));
  }

  function showSeen(pixels) {
    const image = small.createImageData(side, side);
    pixels.forEach((value, i) => image.data.set([255 * value, 255 * value, 255 * value, 255], 4 * i));
    small.putImageData(image, 0, 0);
  }

  function readPad() {
    waiting = false;
    const { data } = pen.getImageData(0, 0, size, size);
    const ink = Float32Array.from({ length: size * size }, (_, i) => data[4 * i] / 255);
    if (inkBounds(ink, size) === null) return clear();
    return read(fittedPixels(ink, size, side, box));
  }

  function soon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(readPad);
  }

  function clear() {
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, size, size);
    reader.restart();
    history.clear();
    showSeen(new Float64Array(side * side));
    showAnswer(latest = null);
    strip.show(0, side * side);
  }

  function place(event) {
    const area = pad.getBoundingClientRect();
    return [(event.clientX - area.left) * size / area.width, (event.clientY - area.top) * size / area.height];
  }

  function draw(event) {
    if (!last) return;
    const now = place(event);
    pen.strokeStyle = "#fff";
    pen.lineCap = pen.lineJoin = "round";
    pen.lineWidth = size * Math.max(0.075, 0.8 / side);
    pen.beginPath();
    pen.moveTo(...last);
    pen.lineTo(...now);
    pen.stroke();
    last = now;
    soon();
  }

  // A picture: bright on dark as it is, dark on bright turned round.
  async function takePicture(file) {
    fail("");
    try {
      const image = await createImageBitmap(file), most = Math.max(image.width, image.height);
      const [width, height] = [image.width, image.height].map((each) => each * size / most);
      const shot = new OffscreenCanvas(size, size).getContext("2d");
      shot.fillStyle = "#fff";
      shot.fillRect(0, 0, size, size);
      shot.drawImage(image, (size - width) / 2, (size - height) / 2, width, height);
      const { data } = shot.getImageData(0, 0, size, size);
      const grey = Float32Array.from({ length: size * size }, (_, i) =>
        (0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]) / 255);
      const middle = grey[Math.floor(size / 2 - height / 2 + 2) * size + Math.floor(size / 2 - width / 2 + 2)];
      const inside = pen.createImageData(size, size);
      grey.forEach((value, i) => {
        const ink = 255 * Math.max(0, Math.min(1, Math.abs(value - middle) * 1.3 - 0.15));
        inside.data.set([ink, ink, ink, 255], 4 * i);
      });
      pen.putImageData(inside, 0, 0);
      await readPad();
    } catch (error) {
      fail(`${file.name} cannot be read as a picture: ${error.message}`);
    }
  }

  element("drawing").hidden = false;
  seen.width = seen.height = side;
  element("chart-name").textContent = "Probabilities while the pixels are read";
  element("drawing-hint").textContent = "Draw with a mouse or a finger. To the right is what the model "
    + `reads: ${side} × ${side} pixels, ${order.length ? "in the order of its training" : "row by row"}, `
    + "moved and scaled as in its training. Nothing leaves this page.";
  pad.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    pad.setPointerCapture?.(event.pointerId);
    last = place(event);
    draw(event);
  });
  pad.addEventListener("pointermove", draw);
  for (const name of ["pointerup", "pointercancel"]) pad.addEventListener(name, () => { last = null; });
  element("clear").addEventListener("click", clear);
  onFile("picture", takePicture);
  onDrop(takePicture);
  clear();
  return Object.assign(view, { read, readPad, clear, takePicture, reader, strip });
}
