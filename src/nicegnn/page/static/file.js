// A file or a list of molecules: rows come as they are explained, each with its picture.

import { percent, save, send } from "./api.js";

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
  ["notes", (row) => row.error || row.answer.notes.join(" ")],
];
let columns = OURS; // and the user's own
let rows = [];
let sent = null; // words and body of the last request
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
  form.model.addEventListener("change", () => sent && explainAll(form, open));
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
    const answer = await send({ ...sent.words, format: "sdf" }, sent.body).catch((error) => problem(error.message));
    if (answer) save("molecules.sdf", await answer.text(), "chemical/x-mdl-sdfile");
  });
}

async function explainAll(form, open) {
  const file = form.file.files[0];
  const list = form.list.value.trim();
  problem("");
  if (!file && !list) return problem("Choose a file, or write a list of SMILES first.");
  const words = { name: file && !list ? file.name : "list.smi", model: form.model.value, column: form.column.value.trim() };
  sent = { words, body: file && !list ? file : list };
  waiting?.abort();
  const { signal } = (waiting = new AbortController());
  rows = [];
  find("#rows").hidden = find("#file-links").hidden = true;
  find("#progress").textContent = "Sending …";
  find("#stop").hidden = false;
  try {
    const answer = await send(words, sent.body, signal);
    await readLines(answer.body, (row) => {
      if (signal.aborted) return;
      if (!rows.length) {
        columns = [...OURS, ...Object.keys(row.values).map((name) => [name, (one) => one.values[name]])];
        clearTable(open);
      }
      rows.push(row);
      addRow(row, words.model, open);
      find("#progress").textContent = `${rows.length} molecules so far …`;
    });
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

async function readLines(stream, tell) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach((line) => tell(JSON.parse(line)));
  }
}

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
  rows.forEach((row) => addRow(row, sent.words.model, open));
}

function addRow(row, model, open) {
  const line = find("#rows").tBodies[0].insertRow();
  for (const [name, read] of columns) {
    const cell = line.insertCell();
    cell.className = name === "SMILES" ? "smiles" : row.error && name === "notes" ? "error" : "";
    if (name === "picture" && row.answer) cell.append(picture(row, model, open));
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
function picture(row, model, open) {
  const link = document.createElement("a");
  const name = row.id && row.id !== String(row.row) ? `${row.smiles} ${row.id}` : row.smiles;
  link.href = `?${new URLSearchParams({ smiles: name, model })}`;
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(name, model);
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
  const plain = (value) => (/^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value); // no formulas
  const cell = (value) => (/[",\n\r]/.test(plain(value)) ? `"${plain(value).replaceAll('"', '""')}"` : plain(value));
  const lines = table.map((row) => [...ours.map(([, read]) => read(row)), ...own.map((key) => row.values[key] ?? "")]);
  return [[...ours.map(([name]) => name), ...own], ...lines].map((line) => line.map((value) => cell(String(value))).join(",") + "\r\n").join("");
}

function problem(text) {
  find("#file-problem").textContent = text;
  find("#file-problem").hidden = !text;
}
