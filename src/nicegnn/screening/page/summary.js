// The table of substructures: sorted by a column, filtered by prediction, kind and text.
const $ = id => document.getElementById(id);
const body = document.querySelector("tbody");
const longest = Math.max(...ROWS.map(row => row.lift), 0) || 1;
let key = "lift", down = true;

for (const value of new Set(ROWS.map(row => row.prediction))) $("prediction").add(new Option(value, value));
$("prediction").addEventListener("change", show);
$("text").addEventListener("input", show);

function show() {
  const text = $("text").value.toLowerCase(), sign = down ? -1 : 1;
  const rows = ROWS.filter(row => (!$("prediction").value || row.prediction === $("prediction").value)
    && row.substructure.toLowerCase().includes(text));
  rows.sort((a, b) => sign * (typeof a[key] === "number" ? a[key] - b[key] : a[key].localeCompare(b[key])));
  body.replaceChildren(...rows.map(row => {
    const line = document.createElement("tr");
    const cell = (words, kind) => {
      const made = line.insertCell();
      made.textContent = words;
      if (kind) made.className = kind;
      return made;
    };
    cell(row.prediction, "text"); cell(row.substructure, "text");
    cell(row.molecules); cell(row.bonds);
    const lift = cell(""), bar = document.createElement("span");
    bar.className = "bar"; bar.style.width = `${80 * Math.max(row.lift, 0) / longest}px`;
    lift.append(bar, row.lift.toFixed(3));
    cell(row.score.toFixed(3)); cell(row.spread.toFixed(3)); cell(`${(100 * row.holds_best).toFixed(0)} %`);
    cell(row.examples, "text");
    return line;
  }));
  $("count").textContent = `${rows.length} of ${ROWS.length} rows`;
  for (const head of document.querySelectorAll("th[data-key]")) {
    if (head.dataset.key === key) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

for (const head of document.querySelectorAll("th[data-key]")) {
  head.tabIndex = 0;
  const sort = () => { down = head.dataset.key === key ? !down : !head.classList.contains("text"); key = head.dataset.key; show(); };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
}
show();
