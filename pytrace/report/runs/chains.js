"use strict";
// Chains as a drawing. Triples become a graph: each entity once, with what follows from it to its right. Sentences and documents,
// which have no relation, become the tree of the search: what two chains begin with is drawn once. In a graph of triples only the
// chains of the search are drawn, not the one that ends at the answer's sentence.
const chainDrawing = (() => {
  const { shape } = page;
  const BEND = 36;
  const ROW = 62;
  const COLOURS = 6;
  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text, font) => {
    pen.font = font || "12px system-ui, sans-serif";
    return Math.ceil(pen.measureText(text).width);
  };
  const rankClass = (rank) => `r${(rank % COLOURS) + 1}`;
  const percent = (chance) => (chance === null ? "" : `${(100 * chance).toFixed(chance > 0.9995 || chance < 0.00095 ? 0 : 1)}%`);

  // Letters by code points, so that no pair is torn apart.
  function shortened(text, most) {
    const letters = [...text];
    return letters.length <= most ? text : `${letters.slice(0, most - 1).join("").trimEnd()}…`;
  }

  function wrapped(text, width, most) {
    const lines = [];
    let line = "";
    for (const word of text.split(/\s+/)) {
      const longer = line ? `${line} ${word}` : word;
      if (widthOf(longer, "11px system-ui, sans-serif") <= width) {
        line = longer;
      } else {
        if (line) lines.push(line);
        line = shortened(word, Math.floor(width / 7));
        if (lines.length === most) break;
      }
    }
    if (lines.length < most && line) lines.push(line);
    else if (lines.length) lines[lines.length - 1] = `${shortened(lines[lines.length - 1], 40).replace(/…$/, "")} …`;
    return lines;
  }

  // Each chain's number in its colour, with the probability of the step in that chain; of many the first three.
  function badges(uses, x, y) {
    const parts = [];
    const shown = uses.slice(0, 3);
    const texts = shown.map((use) => percent(use.chance));
    const more = uses.length > 3 ? `+${uses.length - 3}` : "";
    const widths = texts.map((text) => 18 + widthOf(text, "11px system-ui, sans-serif") + 8);
    let at = x - (widths.reduce((sum, width) => sum + width, 0) + (more ? 20 : 0)) / 2;
    shown.forEach((use, place) => {
      parts.push(
        shape("circle", { class: `badge ${rankClass(use.rank)}`, cx: at + 8, cy: y, r: 7.5 }),
        shape("text", { class: "badge-number", x: at + 8, y: y + 0.5 }, String(use.rank + 1)),
        shape("text", { class: "chance", x: at + 19, y: y + 0.5 }, texts[place]));
      at += widths[place];
    });
    if (more) parts.push(shape("text", { class: "chance", x: at, y: y + 0.5 }, more));
    return parts;
  }
  const badgesWidth = (uses) => uses.slice(0, 3).reduce((sum, use) => sum + 26 + widthOf(percent(use.chance), "11px system-ui, sans-serif"), uses.length > 3 ? 20 : 0);

  // Give every node a band of rows of its own: what follows from it, then what leads into it from its left. It stands in the
  // middle of what follows, unless something of its own layer is there already; then beside the first that is free, or below.
  function spread(node, top, gap) {
    const height = (node.height || 28) + gap;
    const after = node.children.filter((child) => child.layer > node.layer);
    const before = node.children.filter((child) => child.layer < node.layer);
    let below = top;
    const band = [];
    const place = (child) => {
      below = spread(child, below, gap);
      band.push(child, ...child.band);
    };
    after.forEach(place);
    if (!after.length) below += height;
    before.forEach(place);
    const rows = after.map((child) => child.y);
    const spots = after.length ? [(rows[0] + rows[rows.length - 1]) / 2, ...rows] : [top + height / 2];
    const free = (y) => y - height / 2 >= top - 0.5 && !band.some((other) => other.layer === node.layer && Math.abs(other.y - y) < height);
    node.y = spots.find(free) ?? below + height / 2;
    node.band = band;
    return Math.max(below, node.y + height / 2);
  }

  // The middle and the width of each layer's column; between two columns there is room for the labels of their edges.
  function columns(nodes, edges) {
    const least = Math.min(...nodes.map((node) => node.layer));
    for (const node of nodes) node.layer -= least;
    const layers = Math.max(...nodes.map((node) => node.layer)) + 1;
    const widths = Array(layers).fill(0);
    const gaps = Array(layers).fill(0);
    for (const node of nodes) widths[node.layer] = Math.max(widths[node.layer], node.width);
    for (const edge of edges) {
      const after = Math.max(edge.from.layer, edge.to.layer);
      gaps[after] = Math.max(gaps[after], edge.room + BEND + 26);
    }
    let x = 8;
    for (let layer = 0; layer < layers; layer += 1) {
      x += gaps[layer];
      for (const node of nodes) if (node.layer === layer) node.x = x + widths[layer] / 2;
      x += widths[layer];
    }
    return x + 8;
  }

  function join(edge, floor) {
    const { from, to } = edge;
    if (from === to) {
      const right = from.x + from.width / 2;
      return { curve: [right, from.y - 8, right + 40, from.y, right, from.y + 8], at: [right + 26, from.y + 22] };
    }
    if (to.layer > from.layer) {
      const [x, y, toX, toY] = [from.x + from.width / 2, from.y, to.x - to.width / 2, to.y];
      if (edge.tree === "in") { // level at the head, then down or up into an entity that was there before
        const bend = toX - BEND;
        return { d: `M${x} ${y} L${bend} ${y} C${toX - 12} ${y} ${bend + 12} ${toY} ${toX} ${toY}`, tip: [toX - 9, toY, toX, toY], at: [(x + bend) / 2, y] };
      }
      const bend = x + BEND;
      return { d: `M${x} ${y} C${bend - 12} ${y} ${x + 12} ${toY} ${bend} ${toY} L${toX} ${toY}`, tip: [bend, toY, toX, toY], at: [(bend + toX) / 2 - 3, toY] };
    }
    // Back to what stands further left, below all that is there; a cubic curve comes three quarters as far as its control points.
    const [x, y, toX, toY] = [from.x, from.y + 14, to.x, to.y + 14];
    const low = Math.min(y, toY) + (floor - Math.min(y, toY)) / 0.75;
    return { curve: [x, y, x, low, toX, low, toX, toY], at: [(x + toX) / 2, (y + toY) / 8 + 0.75 * low], back: true };
  }

  function finish(nodes, edges, roots, gap) {
    let bottom = 6;
    for (const root of roots) bottom = spread(root, bottom, gap);
    let width = columns(nodes, edges);
    const extra = [];
    const taken = [];
    const drawn = edges.map((edge) => {
      const { at, back, ...line } = join(edge, bottom + 12);
      let [x, y] = at;
      while (taken.some(([ox, oy, half]) => Math.abs(ox - x) < half + edge.room / 2 && Math.abs(oy - y) < 30)) y += 30;
      taken.push([x, y, edge.room / 2]);
      bottom = Math.max(bottom, y + (back ? 20 : 24));
      width = Math.max(width, x + edge.room / 2 + 8);
      extra.push(...badges(edge.uses, x, y + 11));
      const rank = rankClass(edge.uses[0].rank);
      return { ...line, kind: rank, band: edge.gold ? "band" : "", label: edge.label, name: edge.name, x, y: y - 9 };
    });
    return { width: Math.ceil(width), height: Math.ceil(bottom + 4), nodes, edges: drawn, extra };
  }

  function use(edge, rank, chance) {
    edge.uses.push({ rank, chance });
    edge.room = Math.max(edge.room, badgesWidth(edge.uses));
  }

  function ofTriples(units, chains, isGold) {
    const nodes = new Map();
    const edges = new Map();
    const roots = [];
    const place = (text, layer, parent) => {
      const label = shortened(text || "(nothing)", 26);
      const node = { label, name: text, layer, children: [], width: widthOf(label) + 22, kind: "" };
      nodes.set(key(text), node);
      if (parent) parent.children.push(node);
      else roots.push(node);
      return node;
    };
    const key = (text) => text.toLowerCase().split(/\s+/).join(" ");
    chains.forEach(([own, chances, score], rank) => (score === null ? [] : own).forEach((number, step) => {
      let edge = edges.get(number);
      if (!edge) {
        const [head, relation, tail, document] = units[number];
        let [from, to, tree] = [nodes.get(key(head)), nodes.get(key(tail)), ""];
        if (!from && to) {
          from = place(head, to.layer - 1, to);
          tree = "in";
        } else if (!to) {
          from ||= place(head, 0, null);
          to = key(head) === key(tail) ? from : place(tail, from.layer + 1, from);
        }
        const label = shortened(relation, 28);
        edge = { from, to, tree, label, name: `${head} — ${relation} → ${tail}`, gold: isGold(document), uses: [], room: widthOf(label) };
        edges.set(number, edge);
      }
      use(edge, rank, chances[step]);
    }));
    return finish([...nodes.values()], [...edges.values()], roots, ROW - 28);
  }

  function ofTexts(units, chains, isGold, titleOf) {
    const root = { label: "Question", name: "Question", layer: 0, children: [], width: 82, kind: "start" };
    const nodes = [root];
    const edges = [];
    const follow = (node, mark, makeNode, rank, chance, gold) => {
      let edge = edges.find((one) => one.from === node && one.mark === mark);
      if (!edge) {
        const to = { layer: node.layer + 1, children: [], ...makeNode() };
        node.children.push(to);
        nodes.push(to);
        edge = { from: node, to, mark, label: "", name: "", gold, uses: [], room: 0 };
        edges.push(edge);
      }
      use(edge, rank, chance);
      return edge.to;
    };
    chains.forEach(([own, chances, score, ended], rank) => {
      let node = root;
      own.forEach((number, step) => {
        const [head, , tail, document] = units[number];
        const title = shortened(head || titleOf(document), 32);
        node = follow(node, number, () => ({
          lines: [title, ...wrapped(tail, 206, 2)], name: `${head}: ${tail}`, width: 228, height: 60, kind: isGold(document) ? "gold" : "",
        }), rank, chances[step], false);
      });
      if (ended && score !== null) follow(node, "end", () => ({ label: "end", name: "the selector ended the chain", width: 44, kind: "end" }), rank, null, false);
    });
    return finish(nodes, edges, [root], 18);
  }

  function draw(units, chains, isGold, titleOf) {
    return units.some((unit) => unit[1]) ? ofTriples(units, chains, isGold) : ofTexts(units, chains, isGold, titleOf);
  }

  return { draw, percent, rankClass };
})();
