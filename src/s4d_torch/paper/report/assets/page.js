"use strict";
// A heading of a table sorts its column: numbers by value, the rest by letters.
const keyOf = (row, column) => {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text.replace(/[,\s]/g, "").replace("−", "-"));
  return Number.isNaN(number) ? text : number;
};
// Whichever way a column is sorted, what is no number, as a dash for no run, stays below.
const compare = (a, b, sign) => {
  const words = (typeof a !== "number") - (typeof b !== "number");
  if (words) return words;
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
};
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.parentElement;
    const table = heading.closest("table");
    const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of table.querySelectorAll("th")) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const column = heading.cellIndex;
    rows.sort((a, b) => compare(keyOf(a, column), keyOf(b, column), sign));
    body.append(...rows);
  });
}
