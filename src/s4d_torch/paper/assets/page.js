"use strict";
// A heading of a table sorts its column: numbers by value, the rest by letters.
const keyOf = (row, column) => {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text.replace(/[,\s]/g, "").replace("−", "-"));
  return Number.isNaN(number) ? text : number;
};
const compare = (a, b) => {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "number") return -1;
  if (typeof b === "number") return 1;
  return a.localeCompare(b);
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
    rows.sort((a, b) => sign * compare(keyOf(a, heading.cellIndex), keyOf(b, heading.cellIndex)));
    body.append(...rows);
  });
}
