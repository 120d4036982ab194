"use strict";
// Tables that sort by a click on a heading. Numbers sort by their first number, so that
// "94.9 ± 0.2 (86.6)" counts as 94.9; "-", "- (86.6)" and "nan" come last in either direction.

const report = {};

report.sortKey = (text) => {
  const plain = text.trim().replace(/[−–]/g, "-").replace(/(\d),(?=\d{3}\b)/g, "$1");
  if (/^(-(\s|$)|nan\b|$)/i.test(plain)) return null;
  const found = plain.match(/^[<>≤≥~]?\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(?![\w-])/i);
  return found ? Number(found[1]) : plain.toLowerCase();
};

report.compare = (first, second, direction) => {
  if (first === null || second === null) return (first === null) - (second === null);
  if (typeof first === "number" && typeof second === "number") return direction * (first - second);
  if (typeof first !== typeof second) return typeof first === "number" ? -1 : 1;
  return direction * first.localeCompare(second);
};

report.sortTable = (table, column, direction) => {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, place) => ({
    row, place, key: report.sortKey(row.cells[column].textContent),
  }));
  rows.sort((a, b) => report.compare(a.key, b.key, direction) || a.place - b.place);
  body.append(...rows.map((item) => item.row));
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    if (place === column) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  });
};

report.makeSortable = (table) => {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const keys = [...table.tBodies[0].rows].map((row) => report.sortKey(row.cells[column].textContent));
      const numeric = keys.some((key) => typeof key === "number");
      const now = head.getAttribute("aria-sort");
      // numbers start with the largest, words with the first
      const first = numeric ? "descending" : "ascending";
      const next = now === null ? first : now === "ascending" ? "descending" : "ascending";
      report.sortTable(table, column, next === "ascending" ? 1 : -1);
    });
  });
};

document.querySelectorAll("table.sortable").forEach(report.makeSortable);

document.querySelectorAll(".picture button").forEach((button) => button.addEventListener("click", () => {
  const isLarge = button.closest("figure").classList.toggle("large");
  button.setAttribute("aria-expanded", String(isLarge));
}));
