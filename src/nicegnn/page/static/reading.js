// Molecules of a file or a list, read on this machine: tables, lines of SMILES and names, SDF.

const COLUMNS = ["smiles", "canonical_smiles", "isomeric_smiles", "smi", "structure", "mol", "inchi"];
const IDS = ["id", "name", "compound", "molecule", "title"];

/** Returns the row, id, SMILES and own columns of each molecule; an Error says what is wrong. */
export async function readMolecules(name, text, column) {
  const kind = name.toLowerCase().split(".").pop();
  const known = { csv: readTable, tsv: readTable, smi: readLines, txt: readLines, sdf: readStructures, mol: readStructures };
  if (!known[kind]) throw new Error(`The file must end in .${Object.keys(known).join(", .")} (got ${name}). Save a spreadsheet as CSV.`);
  const found = await known[kind](text, name, column);
  if (!found.length) throw new Error(`${name} must hold at least one molecule (got none).`);
  return found.map((one, place) => ({ values: {}, ...one, row: place + 1, id: one.id || String(place + 1) }));
}

function readLines(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
  return lines.map((line) => ({ smiles: line.split(/\s/)[0], id: line.replace(/^\S+\s*/, "") }));
}

function readTable(text, name, column) {
  const head = text.split("\n")[0];
  const separator = ["\t", ";", ","].find((sign) => head.includes(sign)) ?? ",";
  const [names = [], ...rows] = cellsOf(text, separator);
  const lower = names.map((one) => one.trim().toLowerCase());
  const place = column ? names.indexOf(column) : lower.indexOf(COLUMNS.find((one) => lower.includes(one)));
  const its = names.map((one) => `'${one}'`).join(", ");
  if (column && place < 0) throw new Error(`${name} has no column '${column}'; it has ${its}.`);
  if (place < 0) throw new Error(`${name} must have a column of SMILES (it has ${its}). Name it as the column of SMILES.`);
  const id = lower.indexOf(IDS.find((one) => lower.includes(one)));
  const own = names.map((_, number) => number).filter((number) => number !== place && number !== id);
  return rows.map((row) => ({
    smiles: (row[place] ?? "").trim(),
    id: (row[id] ?? "").trim(),
    values: Object.fromEntries(own.map((number) => [names[number], row[number] ?? ""])),
  }));
}

/** Returns the cells of each line; quoted ones may hold separators, line ends and doubled quotes. */
function cellsOf(text, separator) {
  let line = [""];
  const lines = [line];
  let isQuoted = false;
  for (let place = 0; place < text.length; place += 1) {
    const sign = text[place];
    if (isQuoted && sign === '"' && text[place + 1] === '"') line[line.length - 1] += text[(place += 1)];
    else if (sign === '"') isQuoted = !isQuoted;
    else if (!isQuoted && sign === separator) line.push("");
    else if (!isQuoted && sign === "\n") lines.push((line = [""]));
    else if (sign !== "\r") line[line.length - 1] += sign;
  }
  return lines.filter((cells) => cells.some((cell) => cell.trim()));
}

async function readStructures(text) {
  const { Molecule } = await import("./openchemlib.js");
  const entries = text.replaceAll("\r", "").split(/^\$\$\$\$.*\n?/m).filter((entry) => entry.includes("M  END"));
  return entries.map((entry) => {
    const fields = [...entry.matchAll(/^>.*<(.+?)>.*\n((?:.+\n?)*)/gm)].map(([, field, value]) => [field, value.trim()]);
    return { smiles: Molecule.fromMolfile(entry).toIsomericSmiles(), id: entry.split("\n")[0].trim(), values: Object.fromEntries(fields) };
  });
}
