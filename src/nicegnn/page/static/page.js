// The page: one or two panels, each with a molecule and a model; the address bar holds all of it.

import { address, ask, csvOf, percent, save } from "./api.js";
import { loadEditor, showInEditor } from "./editor.js";
import { startFiles } from "./file.js";
import { showLegend, showPicture, showTable } from "./picture.js";

const EXAMPLES = {
  paracetamol: "CC(=O)Nc1ccc(O)cc1",
  "4-nitrobiphenyl": "O=[N+]([O-])c1ccc(-c2ccccc2)cc1",
  caffeine: "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
  ibuprofen: "CC(C)Cc1ccc(C(C)C(=O)O)cc1",
  menthol: "CC(C)C1CCC(C)CC1O",
};
const POINT = "Point at a bond or an atom for its numbers. Click an atom to try others in its place.";
const find = (name) => document.querySelector(name);
const view = find("#view-molecule");
const panels = [];
let models = [];
let active = null; // panel that the editor draws for

/** A molecule, a model, and the answer. */
class Panel {
  constructor(smiles, model) {
    this.root = find("#panel").content.firstElementChild.cloneNode(true);
    this.model = this.find("[name=model]");
    this.smiles = this.find("[name=smiles]");
    this.answer = null;
    for (const one of models) this.model.add(new Option(`${one.name}: ${one.question}`, one.name));
    this.set(smiles, model);
    this.listen();
    addExamples(this.find(".examples"), this);
    find("#panels").append(this.root);
  }

  find(name) {
    return this.root.querySelector(name);
  }

  set(smiles, model = this.model.value) {
    this.smiles.value = smiles;
    this.model.value = model;
    if (!this.model.value) this.model.selectedIndex = 0;
  }

  listen() {
    this.find("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.explain();
    });
    this.smiles.addEventListener("input", () => this.explain({ after: 250 }));
    this.smiles.addEventListener("focus", () => activate(this));
    this.model.addEventListener("change", () => this.explain({ isStep: true }));
    this.root.addEventListener("pointerdown", () => activate(this));
    this.find(".compare").addEventListener("click", () => openSecond());
    this.find(".close").addEventListener("click", () => closePanel(this));
    for (const button of this.root.querySelectorAll("[data-table]")) {
      button.addEventListener("click", () => this.saveTable(button.dataset.table));
    }
    this.find(".copy").addEventListener("click", (event) => copyLink(event.target));
    this.find(".open-draw").addEventListener("click", () => {
      activate(this);
      document.body.classList.toggle("drawing");
      startEditor();
    });
  }

  /** Asks for the present molecule and model; an older answer goes at once and never comes back. */
  async explain({ after = 0, isStep = false, isRestored = false } = {}) {
    this.waiting?.abort();
    const { signal } = (this.waiting = new AbortController());
    this.answer = null;
    this.find(".changes").hidden = true;
    this.find(".heard").textContent = "";
    find("#difference").hidden = true;
    const smiles = this.smiles.value.trim();
    this.root.setAttribute("aria-busy", String(smiles !== ""));
    this.find(".empty").hidden = smiles !== "";
    this.problem("");
    if (!isRestored) keepAddress(isStep);
    if (this === active) showInEditor(smiles.split(/\s/)[0]);
    if (!smiles) {
      this.find(".result").hidden = true;
      return;
    }
    await new Promise((go) => setTimeout(go, after));
    if (signal.aborted) return;
    try {
      const words = { smiles, model: this.model.value };
      const answer = await ask("explain", words, signal);
      if (!signal.aborted) this.show(answer);
    } catch (error) {
      if (signal.aborted) return;
      this.find(".result").hidden = true;
      this.problem(error.message);
    }
    this.root.setAttribute("aria-busy", "false");
    await compareBoth(signal);
    if (this.answer) this.showOthers();
  }

  /** Lets the browser save all bonds or atoms. */
  saveTable(name) {
    const { smiles, prediction, model, [name]: rows } = this.answer;
    const names = Object.keys(rows[0] ?? {});
    const lines = rows.map((row) => [smiles, prediction, model, ...names.map((one) => row[one])]);
    save(`${name}.csv`, csvOf([["smiles", "prediction", "model", ...names], ...lines]), "text/csv");
  }

  problem(text) {
    const box = this.find(".problem");
    box.textContent = text.length > 600 ? `${text.slice(0, 600)} …` : text;
    box.hidden = !text;
  }

  show(answer) {
    this.answer = answer;
    const isValue = answer.probability === null;
    this.find(".prediction").textContent = isValue ? `${answer.prediction} ${answer.unit}` : answer.prediction;
    this.find(".probability").textContent = isValue ? "" : percent(answer.probability);
    this.find(".question").textContent = answer.name ? `${answer.name}: ${answer.question}` : answer.question;
    const far = this.find(".far");
    far.hidden = ["ok", "not known"].includes(answer.applicability);
    far.title = answer.applicability;
    const numbers = this.find(".numbers");
    numbers.textContent = POINT;
    showPicture(this.find(".picture"), answer, (words) => (numbers.textContent = words), (atom) => this.offer(atom));
    showLegend(this.find(".legend"), answer);
    const chip = this.find(".verdict .chip");
    chip.textContent = chip.dataset.verdict = answer.verdict;
    this.find(".words").textContent = answer.words;
    const items = [...answer.notes.map((text) => ["note", text]), ...answer.advice.map((text) => ["", text])];
    if (answer.applicability === "ok") items.push(["", `The model knows such molecules: similarity ${answer.similarity.toFixed(2)} to the nearest training molecule.`]);
    this.find(".advice").replaceChildren(
      ...items.map(([kind, text]) => Object.assign(document.createElement("li"), { className: kind, textContent: text })),
    );
    for (const link of this.root.querySelectorAll("[data-file]")) {
      const name = answer.name ? `${answer.smiles} ${answer.name}` : answer.smiles;
      link.href = address(`file/${link.dataset.file}`, { smiles: name, model: answer.model });
      link.download = link.dataset.file;
    }
    const numbersOf = [["score", (r) => r.score], ["loss", (r) => r.loss], ["± error", (r) => r.stderr], ["rank", (r) => r.rank]];
    const bond = [["bond", (r) => r.name], ["type", (r) => r.type], ["where", (r) => r.groups]];
    showTable(this.find(".bonds"), "Bonds", [...bond, ...numbersOf], answer.bonds);
    showTable(this.find(".atoms"), "Atoms", [["atom", (r) => `${r.element}${r.atom}`], ...numbersOf], answer.atoms);
    this.find(".result").hidden = false;
    const read = [".prediction", ".probability"].map((name) => this.find(name).textContent).join(" ");
    this.find(".heard").textContent = [`${read}.`, answer.words, ...answer.notes].join(" ");
  }

  /** Shows the molecule by the other outputs of the same models, each with its prediction. */
  async showOthers() {
    const { answer } = this;
    const box = this.find(".others");
    const { family } = models.find((one) => one.name === answer.model);
    const others = models.filter((one) => family && one.family === family && one.name !== answer.model);
    box.hidden = !others.length;
    box.replaceChildren();
    for (const { name } of others) {
      const words = { smiles: `${answer.smiles} ${answer.name}`, model: name };
      const other = await ask("explain", words, this.waiting.signal).catch(() => null);
      if (this.answer !== answer) return;
      if (!other) continue;
      const button = Object.assign(document.createElement("button"), { type: "button", title: other.question });
      const sure = other.probability === null ? other.unit : percent(other.probability);
      button.innerHTML = other.svg;
      button.append(`${name}: ${other.prediction} ${sure}`);
      button.addEventListener("click", () => {
        this.model.value = name;
        this.explain({ isStep: true });
      });
      box.append(button);
    }
  }

  /** Offers other atoms in place of one, each with what is predicted then. */
  async offer(atom) {
    const box = this.find(".changes");
    const { answer } = this;
    const title = Object.assign(document.createElement("h3"), { textContent: `Instead of ${atom.element}${atom.atom} …` });
    const close = Object.assign(document.createElement("button"), { type: "button", textContent: "×", ariaLabel: "Close the list of other atoms" });
    const back = () => {
      box.hidden = true;
      this.find(`[data-atom="${atom.atom}"]`)?.focus();
    };
    close.addEventListener("click", back);
    box.onkeydown = (event) => event.key === "Escape" && back();
    box.replaceChildren(title);
    box.hidden = false;
    const list = Object.assign(document.createElement("div"), { className: "list" });
    try {
      const changes = await ask("changes", { smiles: answer.smiles, model: answer.model, atom: atom.atom });
      if (this.answer !== answer) return;
      for (const change of changes) list.append(this.changeButton(change));
      if (!changes.length) list.textContent = "No other atom fits here.";
      title.textContent = `Instead of ${atom.element}${atom.atom}: the change opens beside this molecule.`;
    } catch (error) {
      list.textContent = error.message;
    }
    box.replaceChildren(title, list, close);
    (list.querySelector("button") ?? close).focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest" });
  }

  changeButton(change) {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    const what = Object.assign(document.createElement("b"), { textContent: change.what });
    const { prediction, probability, value, unit } = this.answer;
    const isValue = probability === null;
    const [before, after] = [0, change.change].map((more) =>
      isValue ? Number((value + more).toPrecision(3)) : percent(probability + more),
    );
    button.append(what, isValue ? ` ${before} → ${after} ${unit}` : ` ${prediction} ${before} → ${after}`);
    button.classList.toggle("other", !isValue && change.prediction !== prediction);
    button.addEventListener("click", () => {
      const model = this.model.value;
      if (panels.indexOf(this) === 1) {
        panels[0].set(this.smiles.value, model); // the changed molecule is the next one to change
        panels[0].explain();
      }
      openSecond(change.smiles, model);
    });
    return button;
  }
}

/** Opens the second panel, by default with the same molecule and the next model. */
function openSecond(smiles = panels[0].smiles.value, model = undefined) {
  const first = panels[0];
  const next = models[(first.model.selectedIndex + 1) % models.length].name;
  if (panels.length === 1) panels.push(new Panel("", ""));
  panels[1].set(smiles, model ?? next);
  arrange();
  activate(panels[1]);
  panels[1].explain({ isStep: true });
}

function closePanel(panel) {
  panel.waiting?.abort();
  panels.splice(panels.indexOf(panel), 1);
  panel.root.remove();
  arrange();
  activate(panels[0]);
  keepAddress(true);
  panels[0].smiles.focus();
}

function arrange() {
  const isTwo = panels.length === 2;
  view.classList.toggle("two", isTwo);
  panels.forEach((panel, place) => {
    panel.find(".close").hidden = !isTwo;
    panel.find(".compare").hidden = isTwo;
    panel.root.setAttribute("aria-label", isTwo ? ["First molecule", "Second molecule"][place] : "Molecule");
  });
  if (!isTwo) find("#difference").hidden = true;
}

/** Says what differs between the panels, when both have answers; values get the same colours. */
async function compareBoth(signal) {
  const [first, second] = panels.map((panel) => panel.answer);
  if (!first || !second) return;
  const words = { smiles: first.smiles, smiles2: second.smiles, model: first.model, model2: second.model };
  const limit = Math.max(first.limit, second.limit);
  if (first.model === second.model && first.limit !== second.limit) {
    for (const panel of panels) {
      if (panel.answer.limit < limit) {
        const { smiles, model, name } = panel.answer;
        const answer = await ask("explain", { smiles: `${smiles} ${name}`, model, limit }, signal).catch(() => null);
        if (answer && !signal.aborted) panel.show(answer);
      }
    }
  }
  const found = await ask("compare", words, signal).catch(() => null);
  if (!found || signal.aborted || panels.some((panel) => !panel.answer)) return;
  find("#difference").textContent = found.words;
  find("#difference").hidden = false;
}

/** Lets the editor draw for a panel. */
function activate(panel) {
  if (active === panel) return;
  active = panel;
  for (const one of panels) one.root.classList.toggle("active", one === active && panels.length > 1);
  find("#drawn-for").textContent = panels.length > 1 ? `the ${panel === panels[0] ? "first" : "second"} molecule` : "";
  showInEditor(panel.smiles.value.trim().split(/\s/)[0]);
}

function startEditor() {
  loadEditor(find("#editor"), (smiles) => {
    active.set(smiles);
    active.explain({ after: 150 });
  }).then(() => showInEditor(active.smiles.value.trim().split(/\s/)[0]));
}

/** Writes the panels into the address bar; a step can be taken back. */
function keepAddress(isStep) {
  const words = new URLSearchParams();
  panels.forEach((panel, place) => {
    const end = place ? "2" : "";
    if (panel.smiles.value.trim()) words.set(`smiles${end}`, panel.smiles.value.trim());
    words.set(`model${end}`, panel.model.value);
  });
  const next = `${location.pathname}?${words}`;
  if (next === location.pathname + location.search) return;
  history[isStep ? "pushState" : "replaceState"](null, "", next);
  document.title = `${panels[0].smiles.value || "nicegnn"}: why did the model decide so?`;
}

/** Shows what the address bar says. */
function readAddress() {
  const words = new URLSearchParams(location.search);
  const wanted = words.has("smiles2") || words.has("model2") ? ["", "2"] : [""];
  while (panels.length > wanted.length) panels.pop().root.remove();
  wanted.forEach((end, place) => {
    const smiles = words.get(`smiles${end}`) ?? (place ? panels[0].smiles.value : "");
    const model = words.get(`model${end}`) ?? models[0].name;
    if (panels[place]) panels[place].set(smiles, model);
    else panels.push(new Panel(smiles, model));
  });
  arrange();
  active = null;
  activate(panels[0]);
  return Promise.all(panels.map((panel) => panel.explain({ isRestored: true })));
}

async function copyLink(button) {
  const link = location.href;
  try {
    await navigator.clipboard.writeText(link);
    button.textContent = "Copied";
  } catch {
    prompt("Copy this link:", link); // pages that are not on this machine may not write there
  }
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}

/** Shows one of the two views. */
function showView(name) {
  for (const one of ["molecule", "file"]) {
    find(`#view-${one}`).hidden = one !== name;
    find(`#tab-${one}`).setAttribute("aria-selected", String(one === name));
    find(`#tab-${one}`).tabIndex = one === name ? 0 : -1;
  }
}

/** Adds a button for each example, for a panel or for the active one. */
function addExamples(place, panel = null) {
  for (const [name, smiles] of Object.entries(EXAMPLES)) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    button.addEventListener("click", () => {
      (panel ?? active).set(smiles);
      (panel ?? active).explain({ isStep: true });
    });
    place.append(button);
  }
}

async function start() {
  addExamples(find("#draw .examples"));
  for (const name of ["molecule", "file"]) {
    const tab = find(`#tab-${name}`);
    tab.addEventListener("click", () => showView(name));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      const other = name === "file" ? "molecule" : "file";
      showView(other);
      find(`#tab-${other}`).focus();
    });
  }
  find("#close-draw").addEventListener("click", () => document.body.classList.remove("drawing"));
  addEventListener("popstate", readAddress);
  models = await ask("models");
  startFiles(models, (smiles, model) => {
    showView("molecule");
    panels[0].set(smiles, model);
    activate(panels[0]);
    panels[0].explain({ isStep: true });
    find("#main").focus();
  });
  await readAddress();
  if (matchMedia("(min-width: 861px)").matches) startEditor();
}

start().catch((error) => {
  const box = Object.assign(document.createElement("p"), { className: "problem", textContent: error.message });
  find("#main").prepend(box);
});
