"use strict";
// The table of means: target, protocol and metric are chosen, every number tells its sources.

(() => {
  const data = report.data("results");
  if (!data) return;
  const { element } = report;
  const table = document.getElementById("result-table");
  const form = document.getElementById("result-choices");
  const note = document.getElementById("result-note");
  const trace = document.getElementById("trace");
  const metricPlace = Object.fromEntries(data.metrics.map((metric, place) => [metric.name, place]));
  const cellAt = new Map();
  data.cells.forEach((cell) => cellAt.set(cell.slice(0, 3).join("/"), cell));
  const sourceAt = new Map();
  data.sources.forEach((source, place) => {
    sourceAt.set([source.dataset, source.target, source.method].join("/"), place);
  });
  const state = { target: data.target, metric: "", protocol: 0, variants: true };

  const protocolsOf = (metric) =>
    data.protocols.map((_, place) => place).filter((protocol) =>
      data.cells.some((cell) => cell[1] === protocol && cell[2] === metricPlace[metric]));

  const protocolTitle = (place) => data.protocolTitles[place];

  const text = (cell, metric, paper) => {
    if (!cell) return paper === undefined ? "–" : `– (${paper.toFixed(1)})`;
    const scale = metric.percent ? 100 : 1;
    const show = (value) =>
      metric.percent ? (scale * value).toFixed(1) : String(Number(value.toPrecision(3)));
    const spread = cell[4] === null ? "" : ` ± ${show(cell[4])}`;
    return `${show(cell[3])}${spread}${paper === undefined ? "" : ` (${paper.toFixed(1)})`}`;
  };

  report.describe = (source, cell) => {
    const seeds = source.seeds.map((seed, place) =>
      `seed ${seed}: ${source.keys[place]}`);
    const mechanism = source.mechanism ? `, mechanism ${source.mechanism}` : "";
    const counts = cell
      ? `${cell[5]} seed(s), ${cell[6]} graph(s), ${cell[7]} undefined value(s), mean ${cell[3]}`
      : `${source.seeds.length} seed(s), ${source.num_graphs} graph(s)`;
    return `${source.dataset}, target ${source.target}, explainer ${source.explainer}${mechanism}: `
      + `${counts}. Cells: ${seeds.join("; ")}.`;
  };

  const draw = () => {
    const place = metricPlace[state.metric];
    const metric = data.metrics[place];
    const datasets = data.datasets;
    const hasPaper = data.protocols[state.protocol] === "paper" && state.target === "gin";
    const ranks = data.ranks[`${state.target}/${state.protocol}/${place}`] || {};
    const head = element("tr", {}, element("th", { class: "text", scope: "col" }, "method"));
    head.append(element("th", { class: "text", scope: "col" }, "group"));
    datasets.forEach((name) => head.append(element("th", { scope: "col" },
      data.standIns.includes(name) ? `${name} (stand-in)` : name)));
    head.append(element("th", { scope: "col" }, "average rank"));
    const body = element("tbody");
    const best = {};
    for (const method of data.methods) {
      if (!state.variants && method.name.includes("+")) continue;
      const found = datasets.map((dataset) => {
        const source = sourceAt.get([dataset, state.target, method.name].join("/"));
        return [source, cellAt.get([source, state.protocol, place].join("/"))];
      });
      if (!found.some(([, cell]) => cell)) continue;
      const row = element("tr", { class: method.group });
      row.append(element("td", { class: "text" }, method.name));
      row.append(element("td", { class: "text" }, method.group));
      found.forEach(([source, cell], column) => {
        const paper = hasPaper ? data.paper[state.metric]?.[method.name]?.[datasets[column]] : undefined;
        const box = element("td", {}, text(cell, metric, paper));
        if (cell) {
          box.dataset.source = source;
          box.dataset.cell = cell.slice(0, 3).join("/");
          const ranked = method.group === "rival" || method.group === "ours";
          const worth = metric.better * cell[3];
          if (ranked && metric.better && !(worth <= best[column]?.[0])) best[column] = [worth, box];
        }
        row.append(box);
      });
      const rank = ranks[method.name];
      row.append(element("td", {}, rank === undefined ? "–" : rank.toFixed(2)));
      body.append(row);
    }
    Object.values(best).forEach(([, box]) => box.classList.add("best"));
    table.replaceChildren(element("thead", {}, head), body);
    report.makeSortable(table);
    report.makeReachable(table);
    const better = { 1: "higher is better", "-1": "lower is better", 0: "" }[metric.better];
    note.textContent = `${metric.title}${metric.percent ? " in percent" : ""}, `
      + `${protocolTitle(state.protocol)}, target ${state.target}${better && `; ${better}`}. The `
      + "average rank is over the datasets on which a method has a value, among rivals and ours.";
  };

  const tell = (event) => {
    const box = event.target.closest?.("td[data-source]");
    trace.hidden = !box;
    if (box) {
      trace.textContent = report.describe(data.sources[box.dataset.source], cellAt.get(box.dataset.cell));
    }
  };
  document.addEventListener("pointerover", tell);
  document.addEventListener("focusin", tell);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") trace.hidden = true; });

  // one number of a table can be reached with Tab, the others from there with the arrow keys
  report.makeReachable = (where) => {
    const first = where.querySelector("td[data-source]");
    if (first) first.tabIndex = 0;
  };
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest?.("td[data-source]");
    const step = steps[event.key];
    if (!box || !step) return;
    event.preventDefault();
    const rows = [...box.closest("tbody").rows];
    let row = rows.indexOf(box.parentElement) + step[0];
    let column = box.cellIndex + step[1];
    while (rows[row]?.cells[column]) {
      const next = rows[row].cells[column];
      if (next.dataset.source !== undefined) {
        box.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
        return;
      }
      row += step[0];
      column += step[1];
    }
  });

  let protocolSelect;
  const setMetric = (name, wanted) => {
    state.metric = name;
    const there = protocolsOf(name);
    const now = wanted === undefined ? state.protocol : wanted;
    state.protocol = there.includes(now) ? now : there[0];
    protocolSelect.replaceChildren(...there.map((place) =>
      element("option", { value: String(place) }, protocolTitle(place))));
    protocolSelect.value = String(state.protocol);
    draw();
  };
  const targetSelect = report.choice(form, "Target",
    data.targets.map((name) => [name, name]), state.target, (value) => { state.target = value; draw(); });
  targetSelect.id = "result-target";
  const metricSelect = report.choice(form, "Metric",
    data.metrics.map((metric) => [metric.name, metric.title]), "", (value) => setMetric(value));
  metricSelect.id = "result-metric";
  protocolSelect = report.choice(form, "Protocol", [], "", (value) => { state.protocol = Number(value); draw(); });
  protocolSelect.id = "result-protocol";
  const box = element("input", { type: "checkbox", id: "result-variants" });
  box.checked = true;
  box.addEventListener("change", () => { state.variants = box.checked; draw(); });
  form.append(element("label", { class: "tick" }, "with other mechanisms", box));
  form.addEventListener("submit", (event) => event.preventDefault());

  const names = data.metrics.map((metric) => metric.name);
  const start = ["roc_auc", "f1"].find((name) => names.includes(name)) || names[0];
  metricSelect.value = start;
  setMetric(start, Math.max(0, data.protocols.indexOf("paper")));

  document.querySelectorAll("a[data-metric]").forEach((link) => link.addEventListener("click", () => {
    if (!names.includes(link.dataset.metric)) return;
    metricSelect.value = link.dataset.metric;
    setMetric(link.dataset.metric, data.protocols.indexOf(link.dataset.protocol));
  }));
  document.querySelectorAll("table.sortable").forEach(report.makeReachable);
  const filter = document.getElementById("source-filter");
  if (filter) {
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of document.querySelectorAll("#source-table tbody tr")) {
        const content = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => content.includes(word));
      }
    });
  }
})();
