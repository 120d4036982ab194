// The picture: each atom and bond can be pointed at, focused with arrow keys, and clicked.

const NS = "http://www.w3.org/2000/svg";

const number = (value, digits = 2) => (value === null ? "?" : Number(value.toPrecision(digits)).toString());

/** Says what an atom or bond does to the prediction. */
export function effect(part, answer) {
  if (part.score === null) return "not scored";
  const error = part.stderr === null ? "" : ` ± ${number(part.stderr)}`;
  if (answer.score_unit === "own") return `score ${number(part.score, 3)}`;
  if (answer.score_unit === "value") {
    const unit = answer.unit ? ` ${answer.unit}` : "";
    return `${part.loss < 0 ? "lowers" : "raises"} the value by ${number(Math.abs(part.loss))}${error}${unit}`;
  }
  if (part.score === 0) return "without it the odds do not fall";
  const size = `${number(Math.abs(part.loss))}${error} log-odds`;
  return part.score < 0
    ? `speaks against the prediction: without it the odds grow by ${size}`
    : `without it ${Math.round(100 * part.score)} % of the odds are lost (${size})`;
}

const bondWords = (bond, answer) =>
  `${bond.name}, ${bond.type}, ${bond.groups}: ${effect(bond, answer)}; number ${bond.rank} of ${answer.bonds.length} bonds.`;

const atomWords = (atom, answer) => {
  const rank = atom.rank === null ? "" : `; number ${atom.rank} of ${answer.atoms.length} atoms`;
  return `Atom ${atom.element}${atom.atom}: ${effect(atom, answer)}${rank}.`;
};

/** Shows the picture in an element; `say` is told what is pointed at, `choose` which atom is clicked. */
export function showPicture(place, answer, say, choose) {
  const read = new DOMParser().parseFromString(answer.svg, "image/svg+xml").documentElement;
  const svg = document.importNode(read, true);
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  svg.setAttribute("role", "group");
  const name = answer.name || answer.smiles;
  svg.setAttribute("aria-label", `Picture of ${name}. Arrow keys go through its bonds, then its atoms.`);
  svg.querySelectorAll("title").forEach((title) => title.remove());
  const parts = [];

  function add(tag, facts, label, atom = null) {
    const hit = document.createElementNS(NS, tag);
    const isButton = atom !== null;
    const words = { ...facts, class: "hit", tabindex: "-1", role: isButton ? "button" : "img", "aria-label": label };
    for (const [key, value] of Object.entries(words)) hit.setAttribute(key, value);
    for (const event of ["pointerenter", "focus"]) hit.addEventListener(event, () => say(label));
    hit.addEventListener("click", () => {
      say(label);
      if (isButton) choose(atom);
    });
    parts.push(hit);
  }

  for (const bond of answer.bonds) {
    const [[x1, y1], [x2, y2]] = [answer.points[bond.atom_a], answer.points[bond.atom_b]];
    add("line", { x1, y1, x2, y2, "data-bond": bond.bond }, bondWords(bond, answer));
  }
  for (const atom of answer.atoms) {
    const [cx, cy] = answer.points[atom.atom];
    add("circle", { cx, cy, r: 11, "data-atom": atom.atom }, atomWords(atom, answer), atom);
  }
  svg.append(...parts);
  parts[0]?.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const here = parts.indexOf(document.activeElement);
    const steps = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: parts.length - 1 };
    if (event.key in steps) {
      const next = parts[(steps[event.key] + parts.length) % parts.length];
      parts.forEach((part) => part.setAttribute("tabindex", part === next ? "0" : "-1"));
      next.focus();
      event.preventDefault();
    } else if ((event.key === "Enter" || event.key === " ") && here >= 0) {
      document.activeElement.dispatchEvent(new MouseEvent("click"));
      event.preventDefault();
    }
  });
  place.replaceChildren(svg);
}

/** Shows what the colours mean. */
export function showLegend(place, answer) {
  const odds = answer.score_unit === "odds";
  const limit = number(answer.limit, 3);
  const bar = (from, to) => `linear-gradient(to right, ${from}, ${to})`;
  const entry = (words, low, high, colours) => {
    const span = document.createElement("span");
    const strip = document.createElement("i");
    strip.style.background = colours;
    span.append(`${words} ${low}`, strip, high);
    return span;
  };
  const top = odds ? "all" : limit;
  place.replaceChildren(
    entry(odds ? "share of the odds lost without it:" : "raises the value:", odds ? "none" : "0", top, bar("#f7f4f0", "#d55e00")),
    entry(odds ? "speaks against:" : "lowers it:", odds ? "not" : "0", odds ? "fully" : limit, bar("#f7f4f0", "#0072b2")),
  );
}

/** Fills a table with all bonds or atoms. */
export function showTable(table, caption, columns, rows) {
  const head = table.createTHead();
  const line = document.createElement("tr");
  for (const [name] of columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    line.append(cell);
  }
  head.replaceChildren(line);
  const body = document.createElement("tbody");
  for (const row of rows) {
    const tr = body.insertRow();
    for (const [, read] of columns) {
      const value = read(row);
      const cell = tr.insertCell();
      cell.textContent = typeof value === "number" ? number(value, 3) : value ?? "";
      if (typeof value === "number") cell.className = "number";
    }
  }
  table.replaceChildren(head, body);
  table.createCaption().textContent = caption;
}
