// A file or a list of molecules: rows come as they are explained, each with its picture.

import { ask, askText, csvOf, percent, save } from "./api.js";
import { readMolecules } from "./reading.js";

const find = (name) => document.querySelector(name);
const told = (read, otherwise = "") => (row) => (row.answer && read(row.answer)) ?? otherwise;
const isFar = (answer) => !["ok", "not known"].includes(answer.applicability);
/** Column: its name, words of a row that has an answer, and what it is sorted by, if not the words. */
const OURS = [
  ["picture", () => ""],
  ["id", (row) => row.id],
  ["SMILES", (row) => row.smiles],
  ["prediction", told((one) => (one.probability === null ? `${one.prediction} ${one.unit}` : one.prediction))],
  ["probability", told((one) => (one.probability === null ? "" : percent(one.probability))), told((one) => one.probability ?? one.value, -Infinity)],
  ["verdict", told((one) => one.verdict)],
  ["best bond", told((one) => (one.bonds.length ? `${one.bonds[0].name} (${one.bonds[0].groups})` : ""))],
  ["similarity", told((one) => one.similarity?.toFixed(2)), told((one) => one.similarity, -1)],
  ["notes", (row) => row.error ?? row.answer.notes.join(" ")],
];
let columns = OURS; // and the user's own
let rows = [];
let model = ""; // that was asked last
let waiting = null;

/** Starts the form; `open` is called with the SMILES and the model of a row that is chosen. */
export function startFiles(models, open) {
  const form = find("#send");
  for (const one of models) form.model.add(new Option(`${one.name}: ${one.question}`, one.name));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    explainAll(form, open);
  });
  form.file.addEventListener("change", () => form.file.files.length && explainAll(form, open));
  form.model.addEventListener("change", () => model && explainAll(form, open));
  const drop = find("#drop");
  for (const [name, is] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", is);
      if (name !== "drop" || !event.dataTransfer.files.length) return;
      form.file.files = event.dataTransfer.files;
      explainAll(form, open);
    });
  }
  find("#stop").addEventListener("click", () => waiting?.abort());
  find("#table-csv").addEventListener("click", () => save("molecules.csv", toCsv(rows), "text/csv"));
  find("#table-sdf").addEventListener("click", async () => {
    const answers = rows.filter((row) => row.answer);
    const texts = answers.map((row) => askText("file/molecule.sdf", { smiles: named(row), model }));
    await Promise.all(texts).then((all) => save("molecules.sdf", all.join(""), "chemical/x-mdl-sdfile"), (error) => problem(error.message));
  });
}

async function explainAll(form, open) {
  const file = form.file.files[0];
  const list = form.list.value.trim();
  problem("");
  if (!file && !list) return problem("Choose a file, or write a list of SMILES first.");
  model = form.model.value;
  waiting?.abort();
  const { signal } = (waiting = new AbortController());
  rows = [];
  find("#rows").hidden = find("#file-links").hidden = true;
  find("#progress").textContent = "Reading …";
  find("#stop").hidden = false;
  try {
    const [name, text] = list ? ["list.smi", list] : [file.name, await file.text()];
    const molecules = await readMolecules(name, text, form.column.value.trim());
    columns = [...OURS, ...Object.keys(molecules[0].values).map((one) => [one, (row) => row.values[one]])];
    clearTable(open);
    for (const row of molecules) {
      signal.throwIfAborted();
      await explainRow(row, signal);
      rows.push(row);
      addRow(row, open);
      find("#progress").textContent = `${rows.length} of ${molecules.length} molecules …`;
    }
    tellEnd("");
  } catch (error) {
    if (waiting.signal !== signal) return; // a newer file is shown
    if (error.name === "AbortError") tellEnd("Stopped. ");
    else {
      find("#progress").textContent = "";
      problem(error.message);
    }
  }
  find("#stop").hidden = true;
}

function tellEnd(before) {
  const bad = rows.filter((row) => row.error).length;
  const without = bad ? `, ${bad} without an answer (the notes say why)` : "";
  find("#progress").textContent = `${before}${rows.length - bad} molecules explained${without}.`;
  find("#file-links").hidden = rows.length === 0;
}

/** Adds the answer to a row, or what is wrong with its molecule. */
async function explainRow(row, signal) {
  try {
    if (!row.smiles) throw new Error("There is no SMILES.");
    row.answer = await ask("explain", { smiles: named(row), model }, signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    row.error = error.message;
  }
}

/** Returns the SMILES with the name that the file gives. */
const named = (row) => (row.id === String(row.row) ? row.smiles : `${row.smiles} ${row.id.replace(/\s+/g, " ")}`);

function clearTable(open) {
  const table = find("#rows");
  const line = document.createElement("tr");
  for (const [name, read, key] of columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (name === "picture") cell.textContent = name;
    else {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: name, title: `Sort by ${name}` });
      button.addEventListener("click", () => sortBy(cell, key ?? read, open));
      cell.append(button);
    }
    line.append(cell);
  }
  table.tHead.replaceChildren(line);
  table.tBodies[0].replaceChildren();
}

function sortBy(cell, key, open) {
  const falls = cell.getAttribute("aria-sort") !== "descending";
  for (const one of cell.parentElement.children) one.removeAttribute("aria-sort");
  cell.setAttribute("aria-sort", falls ? "descending" : "ascending");
  const order = (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.row - b.row);
  rows.sort((a, b) => (falls ? order(b, a) : order(a, b)));
  find("#rows").tBodies[0].replaceChildren();
  rows.forEach((row) => addRow(row, open));
}

function addRow(row, open) {
  const line = find("#rows").tBodies[0].insertRow();
  for (const [name, read] of columns) {
    const cell = line.insertCell();
    cell.className = name === "SMILES" ? "smiles" : row.error && name === "notes" ? "error" : "";
    if (name === "picture" && row.answer) cell.append(picture(row, open));
    else if (name === "verdict" && row.answer) cell.append(chip(row.answer.verdict), isFar(row.answer) ? chip("unfamiliar", "do not use") : "");
    else cell.textContent = read(row);
  }
  find("#rows").hidden = false;
}

const chip = (text, verdict = text) => {
  const one = Object.assign(document.createElement("span"), { className: "chip", textContent: text });
  one.dataset.verdict = verdict;
  return one;
};

/** Returns a picture that opens the molecule on the page. */
function picture(row, open) {
  const link = document.createElement("a");
  const words = { smiles: named(row), model };
  link.href = `?${new URLSearchParams(words)}`;
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(words.smiles, words.model);
  });
  const image = Object.assign(document.createElement("img"), { loading: "lazy", alt: `Open ${row.id}: ${row.smiles}` });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(row.answer.svg)}`;
  link.append(image);
  return link;
}

function toCsv(table) {
  const own = [...new Set(table.flatMap((row) => Object.keys(row.values)))];
  const of = (name) => [name, told((one) => one[name])];
  const best = OURS.find(([name]) => name === "best bond")[1];
  const ours = [["row", (r) => r.row], ["id", (r) => r.id], ["smiles", (r) => r.smiles], of("prediction"), of("probability"), of("value"),
    of("similarity"), of("applicability"), of("verdict"), ["best_bond", best], ["error", (r) => r.error]];
  const lines = table.map((row) => [...ours.map(([, read]) => read(row)), ...own.map((key) => row.values[key])]);
  return csvOf([[...ours.map(([name]) => name), ...own], ...lines]);
}

function problem(text) {
  find("#file-problem").textContent = text;
  find("#file-problem").hidden = !text;
}
