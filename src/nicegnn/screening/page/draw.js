// Draws a molecule of {x: coordinates, a: labels, b: bonds} as SVG.
"use strict";
const NS = "http://www.w3.org/2000/svg";

function node(name, attributes, parent) {
  const made = document.createElementNS(NS, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(made);
  return made;
}

function shade(level) { // from the colour of the mean to that of the best bond
  const low = [247, 244, 240], high = [213, 94, 0];
  return `rgb(${low.map((v, k) => Math.round(v + (high[k] - v) * level)).join(",")})`;
}

function drawMolecule(m, least = [260, 190]) { // small ones are not blown up
  const at = i => [m.x[2 * i], m.x[2 * i + 1]];
  const xs = m.x.filter((_, k) => k % 2 === 0), ys = m.x.filter((_, k) => k % 2);
  const left = Math.min(...xs) - 24, top = Math.min(...ys) - 20;
  const width = Math.max(...xs) + 24 - left, height = Math.max(...ys) + 20 - top;
  const wide = Math.max(width, least[0]), high = Math.max(height, least[1]);
  const svg = node("svg", {
    viewBox: `${left - (wide - width) / 2} ${top - (high - height) / 2} ${wide} ${high}`,
    role: "img", "aria-label": m.s || "molecule",
  });
  const near = m.a.map(() => []);
  for (const [u, v] of m.b) { near[u].push(v); near[v].push(u); }
  for (const [u, v, , , level] of [...m.b].sort((a, b) => a[4] - b[4])) {
    if (!level) continue;
    const [a, b] = at(u), [c, d] = at(v);
    node("path", { d: `M${a} ${b}L${c} ${d}`, stroke: shade(level / 100), "stroke-linecap": "round",
      "stroke-width": 4 + 9 * level / 100 }, svg);
  }
  const room = i => (m.a[i] ? 8 : 0); // lines end before a label
  for (const [u, v, order, wedge] of m.b) {
    let [a, b] = at(u), [c, d] = at(v);
    const long = Math.hypot(c - a, d - b) || 1, ex = (c - a) / long, ey = (d - b) / long;
    a += ex * room(u); b += ey * room(u); c -= ex * room(v); d -= ey * room(v);
    const line = (s, cut) => node("path", { class: "line",
      d: `M${a + s * -ey + cut * ex} ${b + s * ex + cut * ey}L${c + s * -ey - cut * ex} ${d + s * ex - cut * ey}` }, svg);
    if (wedge === 1) {
      node("path", { class: "wedge", d: `M${a} ${b}L${c - 3 * ey} ${d + 3 * ex}L${c + 3 * ey} ${d - 3 * ex}Z` }, svg);
    } else if (wedge === 2) {
      for (let k = 1; k <= 6; k++) {
        const x = a + (c - a) * k / 6, y = b + (d - b) * k / 6, w = k / 2;
        node("path", { class: "line", d: `M${x - w * ey} ${y + w * ex}L${x + w * ey} ${y - w * ex}` }, svg);
      }
    } else if (order === 2) { // the second line lies where the neighbours are
      let side = 0;
      for (const [end, other] of [[u, v], [v, u]]) for (const n of near[end]) if (n !== other) {
        const [x, y] = at(n), [p, q] = at(end);
        side += Math.sign((x - p) * -ey + (y - q) * ex);
      }
      const ends = near[u].length === 1 || near[v].length === 1;
      if (ends && Math.abs(side) !== 1) { line(2, 0); line(-2, 0); }
      else { line(0, 0); line(side < 0 ? -4 : 4, 2); }
    } else {
      line(0, 0);
      if (order === 3) { line(3.5, 0); line(-3.5, 0); }
    }
  }
  m.a.forEach((label, i) => {
    if (!label) return;
    const [symbol, hydrogens, charge, isotope] = label, [x, y] = at(i);
    const toRight = near[i].reduce((sum, n) => sum + at(n)[0] - x, 0) > 1; // then hydrogens stand left
    const text = node("text", { y: y + 4.3 }, svg);
    const part = (words, shift, size) => {
      const span = node("tspan", { dy: shift, "font-size": size }, text);
      span.textContent = words;
    };
    const half = 4.2 * symbol.length;
    const count = () => { if (hydrogens > 1) { part(hydrogens, 3, 8.5); part("\u200b", -3, 12); } };
    if (hydrogens && toRight && near[i].length) {
      text.setAttribute("text-anchor", "end"); text.setAttribute("x", x + half + (charge ? 5 * charge.length : 0));
      part("H", 0, 12); count(); part(symbol, 0, 12);
    } else {
      text.setAttribute("x", x - half - (isotope ? 8 : 0));
      if (isotope) { part(isotope, -4, 8); part("\u200b", 4, 12); }
      part(symbol, 0, 12);
      if (hydrogens) { part("H", 0, 12); count(); }
    }
    if (charge) part(charge, -5, 9);
  });
  return svg;
}
