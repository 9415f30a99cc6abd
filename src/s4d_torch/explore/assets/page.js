// What listens to the user, and what happens when the page opens.

// ---- messages, copies, colours ------------------------------------------------------------------

let fading = 0;
function say(text, good = false) {
  clearTimeout(fading);
  const message = by("message");
  message.textContent = text;
  message.classList.toggle("good", good);
  message.hidden = !text;
  if (good) fading = setTimeout(() => say(""), 4000); // what went wrong stays
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // without leave to use the clipboard, a selected field can still be copied
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) {
      by("code-details").open = true;
      say(`The browser does not let this page copy; select the ${what} by hand.`);
      return;
    }
  }
  say(`Copied the ${what}.`, true);
}

const THEMES = { auto: "as the system has them", light: "light", dark: "dark" };
const systemTheme = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  const dark = state.theme === "dark" || (state.theme === "auto" && systemTheme.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  by("theme").setAttribute("aria-label", `Colours: ${THEMES[state.theme]}`);
  by("theme").title = `Colours: ${THEMES[state.theme]}`;
}

// ---- runs ---------------------------------------------------------------------------------------

function openRun(text) {
  try {
    run = readRun(text);
  } catch (error) {
    say(error.message);
    return;
  }
  say("");
  keptBefore = { key: "", value: null }; // of another run, perhaps
  enterRun(state, run, 0, 0);
  state.selected = -1;
  update();
}

function openFile(file) {
  file.text().then(openRun, () => say(`${file.name} cannot be read.`));
}

function listenToFiles() {
  by("file").addEventListener("change", () => {
    const [file] = by("file").files;
    if (file) openFile(file);
    by("file").value = ""; // the same file may be chosen again, once it is mended
  });
  const drop = by("drop");
  addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.hidden = true;
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    drop.hidden = true;
    const [file] = event.dataTransfer.files;
    if (file) openFile(file);
  });
}

// ---- controls -----------------------------------------------------------------------------------

// Another start has other poles: what was moved belongs to the old ones.
function choose(changes) {
  Object.assign(state.choice, changes);
  state.moved = new Map();
  state.selected = -1;
  update();
}

function change(changes) {
  Object.assign(state, changes);
  update();
}

function listenToControls() {
  const on = (id, event, act) => by(id).addEventListener(event, () => act(by(id)));
  on("init", "input", (x) => choose({ init: x.value }));
  on("N", "input", (x) => choose({ N: SIZES[x.value] }));
  on("imagScale", "input", (x) => choose({ imagScale: Number((10 ** x.value).toPrecision(3)) }));
  on("randomImag", "input", (x) => choose({ randomImag: x.checked }));
  on("randomReal", "input", (x) => choose({ randomReal: x.checked }));
  on("B", "input", (x) => choose({ B: x.value }));
  on("C", "input", (x) => choose({ C: x.value }));
  const asSeed = (text) => Math.round(between(Number(text) || 0, LIMITS.seed));
  on("seed", "input", (x) => choose({ seed: asSeed(x.value) }));
  on("dt", "input", (x) => change({ dt: Number((10 ** x.value).toPrecision(3)) }));
  on("length", "input", (x) => change({ length: lengthsOf(state, run)[x.value] }));
  on("logarithmic", "input", (x) => change({ logarithmic: x.checked }));
  on("side", "input", (x) => change({ side: Number(x.value) }));
  on("layer", "input", (x) => scroll(Number(x.value) - 1, state.channel));
  on("channel", "input", (x) => scroll(state.layer, Number(x.value) - 1));
  for (const [name, options] of [["rule", RULES], ["constraint", CONSTRAINTS]]) {
    by(name).append(...Object.keys(options).map((value) => segment(name, value)));
  }
  const starts = Object.entries(STARTS);
  by("init").append(...starts.map(([name, start]) => new Option(start.title, name)));
}

function scroll(layer, channel) {
  enterRun(state, run, layer, channel);
  update();
}

function segment(name, value) {
  const [label, input, text] = ["label", "input", "span"].map((tag) => document.createElement(tag));
  Object.assign(input, { type: "radio", name, value });
  input.addEventListener("input", () => change({ [name]: value }));
  text.textContent = value;
  label.append(input, text);
  return label;
}

function listenToButtons() {
  const click = (id, act) => by(id).addEventListener("click", act);
  click("reset", () => {
    const { theme, mode, layer, channel } = state;
    state = { ...freshState(), theme };
    if (mode === "run") enterRun(state, run, layer, channel);
    say("");
    update();
  });
  click("copy-code", () => copy(pythonCode(state, run), "Python code"));
  click("copy-link", () => {
    remember();
    copy(location.href, "link");
  });
  click("theme", () => {
    const names = Object.keys(THEMES);
    change({ theme: names[(names.indexOf(state.theme) + 1) % names.length] });
  });
  click("previous", () => selectPole(state.selected - 1));
  click("next", () => selectPole(state.selected + 1));
  click("put-back", () => putBack(state.selected));
  click("leave-run", () => {
    state = { ...freshState(), theme: state.theme };
    update();
  });
  click("enter-run", () => scroll(0, 0));
}

function listenToPoles() {
  for (const plot of [plots.eigenvalues, plots.discrete]) {
    plot.svg.addEventListener("pointerdown", (event) => startDrag(plot, event));
    plot.svg.addEventListener("keydown", (event) => poleKey(plot, event));
  }
  addEventListener("pointermove", continueDrag);
  addEventListener("pointerup", endDrag);
  addEventListener("pointercancel", endDrag);
  for (const [id, place] of [["pole-re", 0], ["pole-im", 1]]) {
    by(id).addEventListener("change", () => {
      const wanted = at(view.system.A, state.selected);
      if (by(id).value === "" || !Number.isFinite(Number(by(id).value))) return;
      wanted[place] = Number(by(id).value);
      by(id).blur(); // so that the field shows what the constraint makes of it
      movePole(state.selected, wanted);
    });
  }
}

// ---- the beginning ------------------------------------------------------------------------------

function begin() {
  listenToControls();
  listenToButtons();
  listenToPoles();
  listenToFiles();
  by("controls").addEventListener("submit", (event) => event.preventDefault());
  by("choices").open = !matchMedia("(max-width: 760px)").matches;
  const embedded = by("run").textContent.trim();
  if (embedded) {
    try {
      run = readRun(embedded);
    } catch (error) {
      say(error.message);
    }
  }
  state = fromHash(location.hash, run);
  addEventListener("hashchange", () => {
    state = fromHash(location.hash, run);
    update();
  });
  systemTheme.addEventListener("change", showTheme);
  const resized = new ResizeObserver(() => requestAnimationFrame(update));
  resized.observe(document.querySelector(".panels"));
  update();
}

begin();
