// Sorts and filters the molecules, and draws those that come near the screen.
const $ = id => document.getElementById(id);
const cards = $("cards"), STEP = 60;
let chosen = [], shown = 0;

const painter = new IntersectionObserver(seen => {
  for (const one of seen) if (one.isIntersecting) {
    painter.unobserve(one.target);
    one.target.querySelector(".drawing").replaceWith(drawMolecule(one.target.molecule));
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
  head.append(element("b", UNIT ? `${m.p} ${UNIT}` : m.p), element("span", m.q === null ? "" : `${(100 * m.q).toFixed(1)} %`, "q"));
  const list = element("ol");
  for (const line of m.t) list.append(element("li", line));
  const drawing = element("div", undefined, "drawing");
  drawing.style.height = "190px";
  const who = element("div", m.i === String(m.r) ? `row ${m.r}` : `${m.i} (row ${m.r})`, "q");
  box.append(head, who, drawing, list);
  if (m.k.length) box.append(element("div", `best ${m.k[0]}\u00a0% of bonds keep ${m.k[1]}\u00a0% of the prediction, random ones ${m.k[2]}\u00a0%`, "q"));
  if (m.f !== "ok") {
    const care = element("div", m.f, "f");
    care.title = m.f.split(", ").map(one => ADVICE[one]).join(" ");
    box.append(care);
  }
  for (const k of m.h) if (k < ASKED.length) box.append(element("span", ASKED[k], "badge"));
  box.append(element("code", m.s));
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
  const [, down, key] = value("sort").match(/(-?)(\w)/);
  chosen = MOLECULES.filter(m => (!kind || m.p === kind) && (!least || +m.p >= +least) && (!most || +m.p <= +most)
    && (!status || m.f.split(", ").includes(status))
    && (!group || (group[0] === "-" ? !m.h.includes(-group - 1) : m.h.includes(+group)))
    && (!text || m.s.toLowerCase().includes(text) || m.i.toLowerCase().includes(text)));
  const of = { r: m => m.r, q: m => m.q, v: m => +m.p, i: m => m.i }[key];
  const sign = down ? -1 : 1;
  chosen.sort((a, b) => {
    const x = of(a), y = of(b);
    if (key === "i") return sign * String(x).localeCompare(String(y), undefined, { numeric: true });
    return sign * (x - y) || a.r - b.r;
  });
  painter.disconnect();
  cards.replaceChildren();
  shown = 0;
  $("count").textContent = `${chosen.length} of ${MOLECULES.length} molecules`;
  more();
}

for (const id of ["sort", "class", "status", "group"]) if ($(id)) $(id).addEventListener("change", choose);
for (const id of ["text", "least", "most"]) if ($(id)) $(id).addEventListener("input", choose);
new IntersectionObserver(seen => { if (seen[0].isIntersecting) more(); }, { rootMargin: "800px" }).observe($("more"));
choose();
