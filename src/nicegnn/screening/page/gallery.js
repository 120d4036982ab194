// Sorts and filters the molecules, and draws those that come near the screen.
const $ = id => document.getElementById(id);
const cards = $("cards"), STEP = 60;
let chosen = [], shown = 0;

const painter = new IntersectionObserver(seen => {
  for (const one of seen) if (one.isIntersecting) {
    painter.unobserve(one.target);
    one.target.querySelector(".drawing").innerHTML = one.target.molecule.drawing;
  }
}, { rootMargin: "400px" });

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function card(m) {
  const box = element("article", undefined, "card"), head = element("div", undefined, "p");
  const sure = m.probability === null ? "" : `${(100 * m.probability).toFixed(1)} %`;
  const told = [m.endpoint && `${m.endpoint}:`, m.prediction, m.unit].filter(Boolean).join(" ");
  head.append(element("b", told), element("span", sure, "q"));
  const list = element("ol");
  for (const line of m.best) list.append(element("li", line));
  const who = element("div", m.id === String(m.row) ? `row ${m.row}` : `${m.id} (row ${m.row})`, "q");
  box.append(head, who, element("div", undefined, "drawing"), list);
  if (m.trust) box.append(element("div", m.trust, "q"));
  if (m.limits) box.append(element("div", `The model may not fit: ${m.limits}.`, "f"));
  if (m.status !== "ok") {
    const care = element("div", m.status, "f");
    care.title = m.status.split(", ").map(one => ADVICE[one]).join(" ");
    box.append(care);
  }
  for (const name of m.groups) if (ASKED.includes(name)) box.append(element("span", name, "badge"));
  for (const words of m.own) box.append(element("div", words, "q"));
  box.append(element("code", m.smiles));
  box.molecule = m;
  painter.observe(box);
  return box;
}

function more() {
  const next = chosen.slice(shown, shown + STEP);
  cards.append(...next.map(card));
  shown += next.length;
  $("more").textContent = shown < chosen.length ? "More below …" : "";
}

function choose() {
  const value = id => ($(id) ? $(id).value : "");
  const kind = value("class"), status = value("status"), text = value("text").toLowerCase(), group = value("group");
  const least = value("least"), most = value("most");
  const [, down, key] = value("sort").match(/(-?)(\w+)/);
  chosen = MOLECULES.filter(m => (!kind || m.prediction === kind) && (!least || +m.prediction >= +least)
    && (!most || +m.prediction <= +most) && (!status || m.status.split(", ").includes(status))
    && (!value("fit") || (value("fit") === "1") === !m.limits)
    && (!group || (group[0] === "+") === m.groups.includes(group.slice(1)))
    && (!text || m.endpoint.toLowerCase().includes(text) || m.smiles.toLowerCase().includes(text) || m.id.toLowerCase().includes(text)));
  const of = m => key === "value" ? +m.prediction : m[key], sign = down ? -1 : 1;
  chosen.sort((a, b) => {
    if (key === "id") return sign * a.id.localeCompare(b.id, undefined, { numeric: true });
    return sign * (of(a) - of(b)) || a.row - b.row;
  });
  painter.disconnect();
  cards.replaceChildren();
  shown = 0;
  $("count").textContent = `${chosen.length} of ${MOLECULES.length} molecules`;
  more();
}

for (const id of ["sort", "class", "status", "fit", "group"]) if ($(id)) $(id).addEventListener("change", choose);
for (const id of ["text", "least", "most"]) if ($(id)) $(id).addEventListener("input", choose);
new IntersectionObserver(seen => { if (seen[0].isIntersecting) more(); }, { rootMargin: "800px" }).observe($("more"));
choose();
