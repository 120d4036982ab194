// Shows openapi.json: every path with its words and an example, every type with its fields.

const SAMPLE = { smiles: "CC(=O)Nc1ccc(O)cc1", smiles2: "CC(=O)Nc1ccc(N)cc1", atom: "8" };


function make(tag, text, ...inner) {
  const one = document.createElement(tag);
  one.append(text, ...inner);
  return one;
}

const kind = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).filter((word) => word !== "null").join(" or ");
  if (schema.enum) return schema.enum.join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items) || "pairs"}`;
  return schema.type ?? "";
};

function table(columns, rows) {
  const one = document.createElement("table");
  one.createTHead().append(make("tr", "", ...columns.map((name) => Object.assign(make("th", name), { scope: "col" }))));
  const body = one.createTBody();
  for (const row of rows) body.append(make("tr", "", ...row.map((text) => make("td", text))));
  return one;
}

function pathSection(path, method, about) {
  const words = about.parameters ?? [];
  const needed = words.filter((word) => word.required && word.in === "query").map((word) => [word.name, SAMPLE[word.name] ?? ""]);
  const sample = `${location.origin}${path.replace("{name}", "picture.svg")}${needed.length ? `?${new URLSearchParams(needed)}` : ""}`;
  const answer = about.responses["200"].content ?? { "a file": {} };
  const returns = Object.entries(answer).map(([type, { schema }]) => `${kind(schema)} ${type}`.trim()).join(", ");
  const section = make("section", "", make("h2", `${method.toUpperCase()} ${path}`), make("p", about.description ?? ""));
  if (words.length) {
    section.append(table(["word", "type", "meaning"], words.map((word) => [
      word.name + (word.required ? "" : " (may be left out)"), kind(word.schema), word.description ?? "",
    ])));
  }
  section.append(make("p", "Answer: ", make("code", returns)));
  section.append(make("p", "Try: ", make("code", `curl '${sample}'`)));
  return section;
}

const api = await (await fetch("openapi.json")).json();
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, about] of Object.entries(methods)) {
    document.querySelector("#paths").append(pathSection(path, method, about));
  }
}
for (const [name, schema] of Object.entries(api.components.schemas)) {
  if (!schema.properties || name.includes("Validation")) continue;
  const rows = Object.entries(schema.properties).map(([key, one]) => [key, kind(one), one.description ?? ""]);
  document.querySelector("#types").append(make("section", "", make("h3", name), make("p", schema.description ?? ""), table(["field", "type", "meaning"], rows)));
}
