"use strict";
// Puts the page together: words, colours, the check against the model, and the view for its input.

const TOLERANCE = 1e-4;  // of the largest output; as in web/format.py
const THEMES = ["", "light", "dark"];

function showWords() {
  const { layers, width } = page.model.size, { task, data } = page;
  document.title = element("title").textContent = page.name;
  const size = `${layers === 1 ? "1 layer" : `${layers} layers`}, ${width} channels`;
  element("summary").textContent = [task?.summary, size].filter(Boolean).join(" · ");
  const source = task && (task.citation || task.licence)
    ? `Trained on ${[task.citation, task.licence].filter(Boolean).join("; ")}. ` : "";
  const rate = page.rate === 1 ? "" : `Sampling rate fixed at rate=${page.rate}. `;
  const unknown = data === null ? "Of the data nothing is known: numbers go in as the model reads them. " : "";
  element("about").textContent = `${source}${rate}${unknown}Written by ${page.written_by}; `
    + "the model is in this file and runs in your browser.";
}

// Compares the answers to the test vector with those that the model gave in PyTorch.
function showCheck(model) {
  const difference = selfTest(model, page.test), good = difference <= TOLERANCE;
  element("checked").className = good ? "good" : "bad";
  element("checked").textContent = good
    ? `Checked: the largest difference from the model is ${difference.toExponential(1)} of its largest output. `
      + `Computed by ${model.engine}.`
    : `This browser does not compute what the model does: the difference is ${difference.toExponential(1)}. `
      + "Do not rely on its answers.";
  return difference;
}

function showTheme(theme) {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = theme || system;
  element("theme").setAttribute("aria-label", `Colours: ${theme || "as the system has them"}`);
}

function startPage() {
  let theme = new URLSearchParams(location.hash.slice(1)).get("theme") ?? "";
  showTheme(theme);
  showWords();
  const model = new Model(page.model), difference = showCheck(model), view = startView(model);
  element("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    showTheme(theme);
    view.strip.draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    showTheme(theme);
    view.strip.draw();
  });
  return { model, difference, view };
}

const started = startPage();
