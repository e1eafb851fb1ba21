// Which nodes and edges the chains of a result make, and where they stand: a column a hop, from the question to the answer.

import { placeOf } from "./chains.js";

const GAP = 84; // between columns: room for a name on an edge
const ROW_GAP = 26;
const DOWN_GAP = 54; // between rows, where hops go from top to bottom
const CLEAR = 16; // between a bent edge and the nodes that it goes round
const NARROWEST = 118; // a node in which two lines of a title can be read
const WIDEST = 210;
const HEIGHT = 58;
const TALL = 88; // the question and the answer, which may take four lines

const MOST_NEIGHBOURS = 6; // of one passage; the list has all

/** Return the id of the node of a passage. */
export const nodeOf = (passage) => `passage:${passage}`;

/**
 * Make a graph of the chains of a result, and of neighbours that were asked for (by the passage whose they are).
 *
 * A passage is in the column of its hop in the first chain that has it. Passages that the answer was read from are marked; the last
 * step of the first chain leads to the answer.
 */
export function chainGraph(question, result, neighbours = new Map()) {
  const { chains = [], sources = [] } = result.evidence;
  const nodes = new Map();
  const edges = new Map();

  const node = (id, values) => {
    if (!nodes.has(id)) nodes.set(id, { id, ...values });
    return nodes.get(id);
  };
  const labels = new Set(); // a name is once beside each passage that it leads to
  const edge = (source, target, kind, name = "") => {
    const key = `${source}→${target}`;
    if (source === target || edges.has(key) || edges.has(`${target}→${source}`)) return;
    const label = labels.has(`${name}→${target}`) ? "" : name;
    labels.add(`${name}→${target}`);
    edges.set(key, { id: key, source, target, kind, label });
  };

  node("question", { kind: "question", label: question, column: 0 });
  for (const [number, chain] of chains.entries()) {
    const path = ["question"];
    for (const step of chain.steps) {
      const from = path[step.after ?? 0] ?? "question";
      const place = placeOf(step, sources);
      path.push(place ? nodeOf(place.id) : from);
      if (!place) continue;
      const column = nodes.get(from).column + 1;
      node(path.at(-1), { kind: "passage", label: place.title, passage: place, column });
      edge(from, path.at(-1), number ? "link" : "evidence", step.link);
    }
    if (!number && result.answer) node("answer", { kind: "answer", label: result.answer }).from = path.at(-1);
  }
  for (const { id, read } of sources) if (read && nodes.has(nodeOf(id))) nodes.get(nodeOf(id)).used = true;

  for (const [passage, found] of neighbours) {
    const from = nodes.get(nodeOf(passage));
    for (const neighbour of from ? found.slice(0, MOST_NEIGHBOURS) : []) {
      const id = nodeOf(neighbour.id);
      node(id, { kind: "neighbour", label: neighbour.title, passage: neighbour });
      edge(from.id, id, "near");
    }
  }

  const answer = nodes.get("answer");
  if (answer) {
    answer.column = 1 + Math.max(...[...nodes.values()].map((found) => found.column ?? 0));
    edge(answer.from, "answer", "answer");
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}

/**
 * Place nodes for a width in pixels: give each x, y (its middle), width and height; return the height of all.
 *
 * Columns run from left to right where there is room for them; else they are rows from top to bottom. Neighbours, which are in
 * no column, stand below.
 */
export function place(nodes, width) {
  const beside = nodes.filter((node) => node.column === undefined);
  const columns = Map.groupBy(
    nodes.filter((node) => node.column !== undefined),
    (node) => node.column,
  );
  const hops = [...columns.keys()].sort((a, b) => a - b).map((key) => columns.get(key));
  for (const node of nodes) node.height = node.kind === "question" || node.kind === "answer" ? TALL : HEIGHT;
  const across = (width - GAP * (hops.length - 1)) / hops.length;
  const down = across < NARROWEST;
  let height = down ? placeDown(hops, width) : placeAcross(hops, width, Math.min(across, WIDEST));
  if (beside.length) height = placeDown([beside], width, height + DOWN_GAP);
  return { height, down };
}

/**
 * Bend edges that would run behind a node of a column between theirs: give each the distance of its curve from the straight
 * line, upwards if negative. Return how much room above and below that takes.
 */
export function bend(nodes, edges) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const room = { above: 0, below: 0 };
  const bottom = Math.max(...nodes.map((node) => node.y + node.height / 2));
  for (const edge of edges) {
    const [from, to] = [byId.get(edge.source), byId.get(edge.target)];
    const between = nodes.filter((node) => node.column > from.column && node.column < to.column);
    const height = (x) => from.y + ((to.y - from.y) * (x - from.x)) / (to.x - from.x);
    const met = between.some((node) => {
      const ends = [height(node.x - node.width / 2), height(node.x + node.width / 2)];
      return Math.min(...ends) < node.y + node.height / 2 + 4 && Math.max(...ends) > node.y - node.height / 2 - 4;
    });
    if (!met) continue;
    const up = Math.max(...between.map((node) => height(node.x) - node.y + node.height / 2)) + CLEAR;
    const down = Math.max(...between.map((node) => node.y + node.height / 2 - height(node.x))) + CLEAR;
    edge.bend = up <= down ? -up : down;
    const middle = (from.y + to.y) / 2 + edge.bend;
    room.above = Math.max(room.above, CLEAR / 2 - middle);
    room.below = Math.max(room.below, middle + CLEAR / 2 - bottom);
  }
  return room;
}

function placeAcross(hops, width, across) {
  const tall = (hop) => hop.reduce((sum, node) => sum + node.height + ROW_GAP, -ROW_GAP);
  const height = Math.max(...hops.map(tall));
  const pitch = hops.length > 1 ? (width - across) / (hops.length - 1) : 0;
  hops.forEach((hop, column) => {
    let top = (height - tall(hop)) / 2;
    for (const node of hop) {
      Object.assign(node, { x: across / 2 + column * pitch, y: top + node.height / 2, width: across });
      top += node.height + ROW_GAP;
    }
  });
  return height;
}

function placeDown(hops, width, top = 0) {
  const gap = 14;
  const most = Math.max(1, Math.floor((width + gap) / (NARROWEST + gap)));
  for (const hop of hops) {
    for (let first = 0; first < hop.length; first += most) {
      const row = hop.slice(first, first + most);
      const widest = row[0].height === TALL ? WIDEST * 1.4 : WIDEST;
      const across = Math.min((width - gap * (row.length - 1)) / row.length, widest);
      const left = (width - across * row.length - gap * (row.length - 1)) / 2;
      row.forEach((node, index) => {
        Object.assign(node, { x: left + across / 2 + index * (across + gap), y: top + node.height / 2, width: across });
      });
      top += Math.max(...row.map((node) => node.height)) + (first + most < hop.length ? 18 : DOWN_GAP);
    }
  }
  return top - DOWN_GAP;
}

/** Break a text into at most `lines` lines of `width`, as `measure` says how wide a text is; what is left out ends in "…". */
export function fitted(text, width, lines, measure) {
  const words = text.trim().split(/\s+/);
  const out = [];
  while (words.length && out.length < lines) {
    let line = words.shift();
    while (words.length && measure(`${line} ${words[0]}`) <= width) line += ` ${words.shift()}`;
    out.push(line);
  }
  if (words.length) out[out.length - 1] += " …";
  return out.map((line) => shortened(line, width, measure)).join("\n");
}

function shortened(line, width, measure) {
  if (measure(line) <= width) return line;
  const letters = [...line.replace(/ …$/, "")];
  while (letters.length > 1 && measure(`${letters.join("").trimEnd()}…`) > width) letters.pop();
  return `${letters.join("").trimEnd()}…`;
}
