"use strict";
// Molecules with the scores of all methods side by side; dataset, methods and colours are chosen.
// RDKit drew each molecule once, with a path of class "band bond-N" under every bond; here the
// bands get the colours of each method.

report.colours = (() => {
  const COLOUR = { positive: [213, 94, 0], negative: [0, 114, 178], weak: [247, 244, 240] };
  const TRUTH = "#009e73";

  const mix = (strong, level) =>
    `rgb(${COLOUR.weak.map((weak, k) => Math.round(weak + (strong[k] - weak) * level)).join(" ")})`;

  // share of the largest absolute value, or squared place among the bonds from 0 (worst) to 1,
  // for the best bonds are what one looks for; null where there is no value
  const levels = (scores, mode) => {
    if (!scores) return [];
    if (mode === "rank") {
      const known = scores.filter((value) => value !== null).sort((a, b) => a - b);
      const below = (value) => known.filter((other) => other < value).length;
      const same = (value) => known.filter((other) => other === value).length;
      const most = Math.max(known.length - 1, 1);
      return scores.map((value) =>
        value === null ? null : ((below(value) + (same(value) - 1) / 2) / most) ** 2);
    }
    const largest = Math.max(...scores.map((value) => Math.abs(value ?? 0)), 0);
    return scores.map((value) => (value === null ? null : largest > 0 ? value / largest : 0));
  };

  const draw = (molecule, { scores = null, mode = "score", label = "" } = {}) => {
    molecule.drawn ??= new DOMParser().parseFromString(molecule.svg, "image/svg+xml").documentElement;
    const svg = document.importNode(molecule.drawn, true);
    svg.setAttribute("aria-label", label);
    svg.classList.add("drawing");
    const unit = Number(svg.dataset.unit);
    const bands = molecule.bonds.map((_, bond) => svg.querySelector(`.band.bond-${bond}`));
    const front = bands.length ? bands.at(-1).nextSibling : null; // lines and labels begin here
    const paint = (band, colour, width) => {
      band.style.stroke = colour;
      band.style.strokeWidth = `${(width * unit).toFixed(1)}px`;
      svg.insertBefore(band, front);
    };
    const truth = new Set(molecule.true);
    const level = levels(scores, mode);
    if (scores) {
      truth.forEach((bond) => paint(bands[bond].cloneNode(), TRUTH, 0.66));
      truth.forEach((bond) => paint(bands[bond].cloneNode(), mix(COLOUR.weak, 1), 0.5));
      bands.map((_, bond) => bond).filter((bond) => level[bond])
        .sort((a, b) => Math.abs(level[a]) - Math.abs(level[b]))
        .forEach((bond) => {
          const share = Math.abs(level[bond]);
          const strong = level[bond] > 0 ? COLOUR.positive : COLOUR.negative;
          paint(bands[bond], mix(strong, share), 0.12 + 0.3 * share);
        });
    } else {
      truth.forEach((bond) => paint(bands[bond], TRUTH, 0.42));
    }
    bands.forEach((band, bond) => {
      const hit = band.cloneNode();
      hit.removeAttribute("style");
      hit.setAttribute("class", "hit");
      hit.dataset.bond = bond;
      const value = scores ? `, score ${scores[bond] ?? "none"}` : "";
      const title = document.createElementNS(svg.namespaceURI, "title");
      title.textContent = `${molecule.bonds[bond]}${value}${truth.has(bond) ? ", true" : ""}`;
      hit.append(title);
      svg.append(hit);
    });
    return svg;
  };

  return { draw, levels };
})();

(() => {
  const index = report.data("gallery");
  const section = document.getElementById("gallery");
  const note = document.getElementById("gallery-note");
  if (!index || !index.length) {
    if (note) note.textContent = "No molecules were asked for.";
    return;
  }
  const { element } = report;
  const form = document.getElementById("gallery-choices");
  const shelf = document.getElementById("molecules");
  const pager = document.getElementById("gallery-pager");
  const state = { data: null, first: 0, size: 1, mode: "rank", protocol: 0, hidden: new Set() };
  const loaded = {};

  const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(0));

  const panel = (molecule, title, scores, values) => {
    const { metrics } = state.data;
    const at = state.protocol * metrics.length;
    const shown = values ? metrics.map((name, k) =>
      `${{ roc_auc: "AUC", f1: "F1" }[name] || name} ${percent(values[at + k])}`).join(", ") : "";
    const label = `Molecule ${molecule.n}, ${title}${shown && `, ${shown}`}`;
    const picture = report.colours.draw(molecule, { scores, mode: state.mode, label });
    return element("figure", { "data-method": title }, picture, element("figcaption", {},
      element("b", {}, title), element("br"), element("span", {}, shown || " "),
      element("output", {}, "")));
  };

  const article = (molecule) => {
    const { data } = state;
    const facts = [`label ${molecule.y}`];
    facts.push(`explained: class ${molecule.explained}, probability ${molecule.p}`);
    facts.push(`${molecule.true.length} of ${molecule.bonds.length} bonds true`);
    if (molecule.alternatives > 1) facts.push(`${molecule.alternatives} alternative explanations`);
    const panels = element("div", { class: "panels" });
    panels.append(panel(molecule, "truth", null, null));
    data.methods.forEach((method, place) => {
      const scores = molecule.scores[place];
      if (scores) panels.append(panel(molecule, method.name, scores, molecule.values[place]));
    });
    const made = element("article", {
      class: "molecule", tabindex: "0", id: `molecule-${molecule.n}`,
      "aria-label": `Molecule ${molecule.n}; arrow keys step through its bonds`,
    });
    made.append(element("h3", {}, `Molecule ${molecule.n}`),
      element("p", { class: "note" }, `${molecule.smiles ? `${molecule.smiles}; ` : ""}${facts.join("; ")}`), panels);
    made.molecule = molecule;
    hide(made);
    return made;
  };

  const hide = (where) => where.querySelectorAll("figure[data-method]").forEach((figure) => {
    figure.hidden = state.hidden.has(figure.dataset.method);
  });

  const point = (made, bond) => {
    const { molecule } = made;
    made.bond = bond;
    made.querySelectorAll(".hit.on").forEach((hit) => hit.classList.remove("on"));
    made.querySelectorAll("figure").forEach((figure) => {
      const out = figure.querySelector("output");
      if (bond === null) { out.textContent = ""; return; }
      const hit = figure.querySelector(`.hit[data-bond="${bond}"]`);
      hit.classList.add("on");
      const place = state.data.methods.findIndex((method) => method.name === figure.dataset.method);
      const name = molecule.bonds[bond];
      out.textContent = place < 0
        ? `${name}: ${molecule.true.includes(bond) ? "true" : "not true"}`
        : `${name}: ${molecule.scores[place][bond] ?? "no value"}`;
    });
  };

  const show = () => {
    const { data } = state;
    const molecules = data.molecules.slice(state.first, state.first + state.size);
    shelf.replaceChildren(...molecules.map(article));
    const last = state.first + molecules.length;
    pager.querySelector("span").textContent =
      `${state.first + 1} to ${last} of ${data.molecules.length} shown here`;
    pager.querySelector(".back").disabled = state.first === 0;
    pager.querySelector(".next").disabled = last >= data.molecules.length;
  };

  const move = (by) => {
    const most = Math.max(0, state.data.molecules.length - 1);
    state.first = Math.min(Math.max(0, state.first + by), most);
    show();
  };

  const methods = element("fieldset");
  const listMethods = () => {
    const names = ["truth", ...state.data.methods.map((method) => method.name)];
    const boxes = names.map((name) => {
      const box = element("input", { type: "checkbox", value: name });
      box.checked = !state.hidden.has(name);
      box.addEventListener("change", () => {
        if (box.checked) state.hidden.delete(name);
        else state.hidden.add(name);
        hide(shelf);
      });
      return element("label", {}, box, name);
    });
    const all = (checked, text) => {
      const button = element("button", { type: "button" }, text);
      button.addEventListener("click", () => {
        names.forEach((name) => (checked || name === "truth" ? state.hidden.delete(name) : state.hidden.add(name)));
        listMethods();
        hide(shelf);
      });
      return button;
    };
    methods.replaceChildren(element("legend", {}, "Methods"), all(true, "all"), all(false, "none"), ...boxes);
  };

  const protocol = report.choice(form, "Values by", [], "", (value) => { state.protocol = Number(value); show(); });
  const numbers = element("datalist", { id: "gallery-numbers" });

  const open = (name) => {
    loaded[name] ??= report.data(`gallery-${name}`);
    const data = loaded[name];
    if (data.problem) {
      note.textContent = data.problem;
      shelf.replaceChildren();
      pager.hidden = methods.hidden = true;
      return;
    }
    pager.hidden = methods.hidden = false;
    Object.assign(state, { data, first: 0 });
    state.protocol = Math.min(state.protocol, Math.max(0, data.protocols.length - 1));
    protocol.replaceChildren(...data.protocols.map((title, place) =>
      element("option", { value: String(place) }, `protocol ${title}`)));
    protocol.value = String(state.protocol);
    numbers.replaceChildren(...data.molecules.map((molecule) => element("option", { value: String(molecule.n) })));
    const about = data.meaning && `: ${data.meaning}. Truth: ${data.truth}`;
    note.textContent = `${data.title}${about}. `
      + `${data.molecules.length} of ${data.explained} explained graphs, drawn at random; `
      + `target ${data.target}, explainers with seed ${data.seed}. AUC and F1 in percent.`;
    listMethods();
    show();
  };

  const dataset = report.choice(form, "Dataset", index.map((name) => [name, name]), index[0], open);
  dataset.id = "gallery-dataset";
  form.prepend(dataset.parentElement);
  const mode = report.choice(form, "Colour by", [["rank", "rank of the score"], ["score", "score"]], state.mode,
    (value) => { state.mode = value; show(); });
  mode.id = "gallery-mode";
  report.choice(form, "At a time", [1, 2, 5, 10].map((size) => [size, String(size)]), state.size,
    (value) => { state.size = Number(value); show(); });
  const number = element("input", {
    id: "gallery-number", type: "number", min: "0", list: "gallery-numbers", inputmode: "numeric",
  });
  form.append(element("label", {}, "Molecule number", number), numbers,
    element("button", { type: "submit" }, "Show"), methods);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (number.value === "" || !state.data) return;
    const place = state.data.molecules.findIndex((molecule) => molecule.n === Number(number.value));
    if (place < 0) {
      note.textContent = `Molecule ${number.value} is not among the ${state.data.molecules.length} on this `
        + `page (${state.data.molecules.map((molecule) => molecule.n).join(", ")}).`;
    } else {
      state.first = place;
      show();
    }
  });

  const back = element("button", { type: "button", class: "back" }, "Back");
  const next = element("button", { type: "button", class: "next" }, "Next");
  back.addEventListener("click", () => move(-state.size));
  next.addEventListener("click", () => move(state.size));
  pager.append(back, next, element("span"));

  shelf.addEventListener("pointerover", (event) => {
    const hit = event.target.closest(".hit");
    if (hit) point(hit.closest("article"), Number(hit.dataset.bond));
  });
  shelf.addEventListener("keydown", (event) => {
    const made = event.target.closest("article");
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!made || !step) return;
    event.preventDefault();
    const count = made.molecule.bonds.length;
    if (count) point(made, ((made.bond ?? (step > 0 ? -1 : 0)) + step + count) % count);
  });
  open(index[0]);
  section.dataset.ready = "yes";
})();
