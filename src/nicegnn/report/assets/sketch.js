"use strict";
// Draws a graph from numbers: coloured lines by score behind, bonds and labels before them.

report.sketch = (() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const COLOUR = { positive: [213, 94, 0], negative: [0, 114, 178], weak: [247, 244, 240] };
  const TRUTH = "#009e73";
  const KINDS = ["single", "double", "triple", "aromatic"];

  const node = (name, attributes, text) => {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const mix = (strong, level) =>
    `rgb(${COLOUR.weak.map((weak, k) => Math.round(weak + (strong[k] - weak) * level)).join(" ")})`;

  const line = (p, q, colour, width, more = {}) => node("line", {
    x1: p[0].toFixed(1), y1: p[1].toFixed(1), x2: q[0].toFixed(1), y2: q[1].toFixed(1),
    stroke: colour, "stroke-width": width, "stroke-linecap": "round", ...more,
  });

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

  const lay = (molecule) => {
    if (molecule.laid) return molecule.laid;
    const points = [];
    for (let k = 0; k < molecule.xy.length; k += 2) points.push([molecule.xy[k], molecule.xy[k + 1]]);
    const bonds = [];
    for (let k = 0; k < molecule.bonds.length; k += 3) bonds.push(molecule.bonds.slice(k, k + 3));
    const near = points.map(() => []);
    bonds.forEach(([u, v]) => { near[u].push(v); near[v].push(u); });
    const atoms = molecule.atoms.split(" ");
    const xs = points.map((p) => p[0]);
    const ys = points.map((p) => p[1]);
    const size = (low, high, least) => {
      const room = Math.max(high - low + 130, least);
      return [(low + high - room) / 2, room];
    };
    const [x, width] = size(Math.min(...xs), Math.max(...xs), 640);
    const [y, height] = size(Math.min(...ys), Math.max(...ys), 480);
    molecule.laid = { points, bonds, near, atoms, box: [x, y, width, height].map(Math.round) };
    return molecule.laid;
  };

  // second and third lines of a bond stand beside it, inside a ring where there is one
  const bondLines = ({ points, near }, [u, v, kind]) => {
    const [p, q] = [points[u], points[v]];
    const length = Math.hypot(q[0] - p[0], q[1] - p[1]) || 1;
    const normal = [(p[1] - q[1]) / length, (q[0] - p[0]) / length];
    const beside = (shift, cut) => {
      const along = [((q[0] - p[0]) / length) * cut, ((q[1] - p[1]) / length) * cut];
      const move = [normal[0] * shift, normal[1] * shift];
      return [[p[0] + along[0] + move[0], p[1] + along[1] + move[1]],
        [q[0] - along[0] + move[0], q[1] - along[1] + move[1]]];
    };
    if (kind === 1) return [beside(0, 0)];
    if (kind === 3) return [beside(0, 0), beside(14, 8), beside(-14, 8)];
    const others = [...near[u].filter((w) => w !== v), ...near[v].filter((w) => w !== u)];
    const side = others.reduce((sum, w) => sum + Math.sign(
      (points[w][0] - p[0]) * normal[0] + (points[w][1] - p[1]) * normal[1]), 0);
    const ends = Math.min(near[u].length, near[v].length);
    if (kind === 2 && (ends < 2 || side === 0)) return [beside(7, 0), beside(-7, 0)];
    return [beside(0, 0), beside(15 * (Math.sign(side) || 1), 14)];
  };

  const bondName = ({ atoms, bonds }, bond) => {
    const [u, v, kind] = bonds[bond];
    return `${atoms[u]}${u}-${atoms[v]}${v}, ${KINDS[kind - 1]}`;
  };

  const draw = (molecule, { scores = null, mode = "score", label = "" } = {}) => {
    const laid = lay(molecule);
    const { points, bonds } = laid;
    const truth = new Set(molecule.true);
    const svg = node("svg", { viewBox: laid.box.join(" "), role: "img", "aria-label": label });
    const stroke = (bond, colour, width) =>
      svg.append(line(points[bonds[bond][0]], points[bonds[bond][1]], colour, width));
    if (scores) {
      truth.forEach((bond) => stroke(bond, TRUTH, 66));
      truth.forEach((bond) => stroke(bond, mix(COLOUR.weak, 1), 50));
      const level = levels(scores, mode);
      bonds.map((_, bond) => bond).filter((bond) => level[bond])
        .sort((a, b) => Math.abs(level[a]) - Math.abs(level[b]))
        .forEach((bond) => {
          const strong = level[bond] > 0 ? COLOUR.positive : COLOUR.negative;
          const share = Math.abs(level[bond]);
          stroke(bond, mix(strong, share), (12 + 30 * share).toFixed(1));
        });
    } else {
      truth.forEach((bond) => stroke(bond, TRUTH, 42));
    }
    bonds.forEach((bond) => bondLines(laid, bond).forEach(([p, q], number) =>
      svg.append(line(p, q, "#1b1b22", 5, bond[2] === 4 && number ? { "stroke-dasharray": "12 10" } : {}))));
    if (!molecule.chem) {
      points.forEach(([x, y]) => svg.append(node("circle", { cx: x, cy: y, r: 9, fill: "#1b1b22" })));
    }
    for (const [atom, text, side] of molecule.labels) {
      const [x, y] = points[atom];
      const anchor = { 0: "middle", 1: "start", "-1": "end" }[side];
      const shift = side === 0 || text.length === 1 ? 0 : -16 * side;
      svg.append(node("text", {
        x: x + shift, y: y + 16, "text-anchor": text.length === 1 ? "middle" : anchor,
      }, text));
    }
    bonds.forEach(([u, v], bond) => {
      const hit = line(points[u], points[v], "", 0, { class: "hit", "data-bond": bond });
      hit.removeAttribute("stroke");
      hit.removeAttribute("stroke-width");
      const value = scores ? `, score ${scores[bond] ?? "none"}` : "";
      const note = `${bondName(laid, bond)}${value}${truth.has(bond) ? ", true" : ""}`;
      hit.append(node("title", {}, note));
      svg.append(hit);
    });
    return svg;
  };

  return { draw, lay, levels, bondName };
})();
