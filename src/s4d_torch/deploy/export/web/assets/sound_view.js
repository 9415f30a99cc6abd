"use strict";
// A microphone, or a sound file: what is heard, while it is heard.

const WINDOW = 6;  // seconds of a live sound on the chart
const MOST_HEARD = 12;
const MOST_ANSWERS = 3000;  // of a file on the chart

function startView(model) {
  const { sample_rate: rate, unit, length, fixed_length: fixed } = page.view;
  const history = new History(names.length, 6000);
  const strip = new Strip(element("chart"), element("keys"), history,
    { names, probabilities, unit: "s" });
  let start = 0, begun = 0;  // samples of the sound at which the model began, and is to begin
  let given = 0;  // samples of the sound so far
  let live = null, latest = null, gate = null, arrived = 0, delay = 0;
  let blocks = [], taken = 0;  // what the model was given of this sequence, and how many samples
  const often = Math.max(1, Math.round(rate / 100));
  const view = { history, answers: [], get read() { return blocks.flatMap((each) => [...each]); } };

  const reader = new Reader(model, often, (sample, y, last) => {
    latest = meaning(y);
    history.add((start + sample) / rate, latest);
    view.answers = [sample, ...y];
    if (live && last) delay = performance.now() - arrived;
    if (last) update();
  }, (place) => {
    start = place;
    history.cut(place / rate);
  });

  function update() {
    const now = given / rate;
    showAnswer(latest);
    strip.show(live ? Math.max(0, now - WINDOW) : 0, live ? Math.max(WINDOW, now) : Math.max(now, 0.1));
    const share = reader.cost * 1e-6 * rate;
    const facts = { "computing": `${reader.cost.toFixed(1)} µs per sample`,
      "of real time": `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` };
    if (live) facts.latency = `${delay.toFixed(0)} ms`;
    if (live && reader.waiting > rate / 2) facts.behind = `${(reader.waiting / rate).toFixed(1)} s`;
    showFacts(facts);
  }

  function clear() {
    history.clear();
    reader.restart();
    begun = given = taken = 0;
    blocks = [];
    latest = null;
  }

  // Samples with full scale at 1, at the model's rate.
  function give(samples) {
    const u = Float32Array.from(samples, (x) => asRead(x * unit));
    blocks.push(u);
    taken += u.length;
    return reader.push(u);
  }

  function begin() {
    begun = given;
    reader.startAgain(begun);
    blocks = [];
    taken = 0;
  }

  function meter(samples) {
    for (let at = 0; at < samples.length; at += reader.every) {
      const level = loudnessOf(samples.subarray(at, at + reader.every));
      history.addLoudness((given + at) / rate, Math.sqrt(level) * 1.2);
      element("level").style.width = `${Math.min(100, 120 * Math.sqrt(level))}%`;
    }
  }

  // ---- a file ----

  async function takeFile(file) {
    await stop();
    fail("");
    try {
      const buffer = await file.arrayBuffer();
      const sound = await readSound(buffer);
      await play(resampled(mixDown(sound.channels), sound.rate, rate), file.name);
    } catch (error) {
      fail(`${file.name} cannot be read: ${error.message}`);
    }
  }

  // A wav file by our own reader, anything else by the browser's.
  async function readSound(buffer) {
    try {
      return readWav(buffer);
    } catch (error) {
      const context = new OfflineAudioContext(1, 1, 48000);
      const sound = await context.decodeAudioData(buffer.slice(0)).catch(() => { throw error; });
      const channels = Array.from({ length: sound.numberOfChannels }, (_, i) => sound.getChannelData(i));
      return { rate: sound.sampleRate, channels };
    }
  }

  async function play(samples, name) {
    clear();
    const clip = fixed ? fitted(samples) : samples;
    if (!clip.length) throw new Error("it holds no samples");
    reader.every = Math.max(often, Math.ceil(clip.length / MOST_ANSWERS));
    meter(clip);
    element("level").style.width = 0;
    given = clip.length;
    await give(clip);
    const longer = clip.length > 1.5 * length
      ? `; it is longer than all sounds of the training (${(length / rate).toFixed(1)} s)` : "";
    element("chart-hint").textContent = `${name}, ${(samples.length / rate).toFixed(2)} s${longer}`;
  }

  // As in training: cut, or silence at the end.
  function fitted(samples) {
    const found = new Float32Array(length);
    found.set(samples.subarray(0, length));
    return found;
  }

  // ---- the microphone ----

  function onWord(what, samples) {
    if (what === "begin") begin();
    if (what === "samples" && (!fixed || taken < length)) give(samples);
    if (what !== "end") return;
    if (fixed) give(new Float32Array(Math.max(0, length - taken)));
    reader.working.then(noteWord);
  }

  function noteWord() {
    if (!latest || !probabilities) return;
    const best = largestOf(latest), item = document.createElement("li");
    item.append(names[best], " ");
    item.appendChild(document.createElement("span")).textContent = percent(latest[best]);
    element("heard").prepend(item);
    while (element("heard").children.length > MOST_HEARD) element("heard").lastChild.remove();
  }

  async function listen() {
    fail("");
    let resampler = null;
    const microphone = new Microphone((block) => {
      arrived = performance.now();
      const samples = resampler.push(block);
      meter(samples);
      if (element("mode").value === "words") gate.push(samples);
      else {
        if (given - begun >= length) begin();
        give(samples);
      }
      given += samples.length;
      update();
    });
    try {
      element("listen").disabled = true;
      // blocks may come before start() returns: the context knows its rate as soon as it is there
      gate = new Gate(rate, onWord);
      reader.every = often;
      resampler = { push: () => new Float32Array(0) };
      clear();
      resampler = new Resampler(await microphone.start(), rate);
      live = microphone;
      element("chart-hint").textContent = `the last ${WINDOW} seconds`;
      showButton();
    } catch (error) {
      await microphone.stop();
      fail(error.message);
    } finally {
      element("listen").disabled = false;
    }
  }

  async function stop() {
    const was = live;
    live = null;
    element("level").style.width = 0;
    if (was) {
      await was.stop();
      gate.close();
    }
    showButton();
  }

  function showButton() {
    element("listen").classList.toggle("listening", live !== null);
    element("listen-name").textContent = live ? "Stop" : "Microphone";
  }

  element("sound").hidden = false;
  element("chart-name").textContent = probabilities ? "Probabilities" : "Outputs";
  const known = page.data?.classes ?? [];
  const told = known.length && known.length <= 20 ? `It knows: ${known.join(", ")}. ` : "";
  element("sound-hint").textContent = "Speak, or drop a sound file anywhere on the page. "
    + `${told}The model hears ${rate} samples per second. Nothing leaves this page.`;
  element("listen").addEventListener("click", () => live ? stop() : listen());
  element("mode").addEventListener("change", () => { gate?.close(); begin(); });
  onFile("file", takeFile);
  onDrop(takeFile);
  strip.show(0, WINDOW);
  return Object.assign(view, { play, takeFile, listen, stop, reader, strip });
}
