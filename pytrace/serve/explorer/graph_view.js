// The graph as Cytoscape draws it. It is a picture of the list of chains, which has all of it as text; so it needs no keys.

/* global cytoscape */
import { byId, spelled, still } from "./elements.js";
import { bend, chainGraph, fitted, nodeOf, place } from "./chain_graph.js";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';
const LINES = { question: 4, answer: 4, passage: 2, neighbour: 2 };
const COLOURS = ["card", "ink", "soft", "line", "accent", "accent-ink", "tint", "none"];

function colours() {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const found = {};
  for (const name of COLOURS) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function style() {
  const colour = colours();
  const node = {
    shape: "round-rectangle",
    "corner-radius": 8,
    width: "data(width)",
    height: "data(height)",
    label: "data(text)",
    "text-wrap": "wrap",
    "text-valign": "center",
    "font-family": FONT,
    "font-size": 13,
    "line-height": 1.25,
    color: colour.ink,
    "background-color": colour.card,
    "border-color": colour.none,
    "border-width": 1,
    "overlay-opacity": 0,
  };
  const edge = {
    width: 1.5,
    "line-color": colour.none,
    "target-arrow-color": colour.none,
    "target-arrow-shape": "triangle",
    "arrow-scale": 0.85,
    "curve-style": "bezier",
    "target-label": "data(text)",
    "target-text-offset": "data(offset)",
    "font-family": FONT,
    "font-size": 11,
    "line-height": 1.2,
    color: colour.soft,
    "text-wrap": "wrap",
    "text-background-color": colour.card,
    "text-background-opacity": 1,
    "text-background-padding": 2,
    "overlay-opacity": 0,
  };
  return [
    { selector: "node", style: node },
    { selector: "node[kind = 'question']", style: { "background-color": colour.tint, "border-width": 0 } },
    { selector: "node[?used]", style: { "border-width": 3, "border-color": colour.accent } },
    { selector: "node[kind = 'neighbour']", style: { "border-style": "dashed", color: colour.soft } },
    {
      selector: "node[kind = 'answer']",
      style: { "background-color": colour.accent, color: colour["accent-ink"], "border-width": 0, "font-weight": 600 },
    },
    { selector: "node.shown", style: { "background-color": colour.tint } },
    { selector: "edge", style: edge },
    {
      selector: "edge[kind = 'answer'], edge[kind = 'evidence']",
      style: { "line-color": colour.accent, "target-arrow-color": colour.accent, width: 2 },
    },
    {
      selector: "edge[bend]",
      style: {
        "curve-style": "unbundled-bezier",
        "control-point-weights": "0.25 0.75",
        "control-point-distances": (edge) => [edge.data("bend"), edge.data("bend")],
      },
    },
    { selector: "edge[kind = 'near']", style: { "line-style": "dashed", "target-arrow-shape": "none" } },
  ];
}

/** The graph of the chains of a question. `read(passage)` is called with the passage or neighbour that is clicked. */
export class GraphView {
  constructor(box, caption, read) {
    this.box = box;
    this.caption = caption;
    this.read = read;
    this.question = "";
    this.result = null;
    this.neighbours = new Map();
    this.shown = null;
    this.pen = document.createElement("canvas").getContext("2d");
    this.width = 0;
    new ResizeObserver(() => {
      if (Math.abs(this.box.clientWidth - this.width) > 1) this.draw();
    }).observe(box);
    addEventListener("themechange", () => this.cy?.style(style()));
  }

  /** Draw the chains of a result. */
  show(asked, result) {
    this.question = asked.request.question;
    this.result = result;
    this.draw();
  }

  /** Add the neighbours of a passage, or take them away (null). */
  setNeighbours(passage, found) {
    if (found) this.neighbours.set(passage, found);
    else this.neighbours.delete(passage);
    this.draw();
  }

  /** Mark the passage that is open in the reader. */
  mark(passage) {
    this.shown = passage;
    this.cy?.nodes().removeClass("shown");
    this.cy?.getElementById(nodeOf(passage)).addClass("shown");
  }

  draw() {
    this.width = this.box.clientWidth;
    if (!this.result || this.width < 50) return;
    const { nodes, edges } = chainGraph(this.question, this.result, this.neighbours);
    const margin = 4; // borders are drawn half outside their nodes
    const { height, down } = place(nodes, this.width - 2 * margin);
    const { above, below } = down ? { above: 0, below: 0 } : bend(nodes, edges);
    this.box.style.height = `${Math.ceil(above + height + below + 2 * margin)}px`;
    this.pen.font = `13px ${FONT}`;
    const wide = (text) => this.pen.measureText(text).width * 1.06; // the answer's letters are bolder
    const elements = nodes.map((node) => ({
      data: { ...node, text: fitted(node.label || "Untitled", node.width - 22, LINES[node.kind], wide) },
      position: { x: node.x + margin, y: node.y + margin + above },
      classes: node.passage?.id === this.shown ? "shown" : "",
    }));
    this.pen.font = `11px ${FONT}`;
    const small = (text) => this.pen.measureText(text).width;
    const column = new Map(nodes.map(({ id, x }) => [id, x]));
    for (const edge of edges) {
      // Between two nodes that stand one above the other is no room for a name; the list below has it.
      const room = down || column.get(edge.source) !== column.get(edge.target);
      const text = edge.label && room ? fitted(edge.label, down ? 120 : 76, down ? 1 : 2, small) : "";
      elements.push({ data: { ...edge, offset: down ? 26 : 42, text } });
    }
    if (!this.cy) this.#create();
    this.cy.resize();
    this.cy.elements().remove();
    this.cy.add(elements);
    this.cy.viewport({ zoom: 1, pan: { x: 0, y: 0 } });
    if (this.neighbours.size && !still()) {
      this.cy
        .nodes("[kind = 'neighbour']")
        .style("opacity", 0)
        .animate({ style: { opacity: 1 } }, { duration: 200 });
    }
  }

  #create() {
    this.cy = cytoscape({
      container: this.box,
      style: style(),
      layout: { name: "preset" },
      pixelRatio: Math.max(2, devicePixelRatio), // letters are blurred at 1
      userZoomingEnabled: false,
      userPanningEnabled: false,
      boxSelectionEnabled: false,
      autoungrabify: true,
      autounselectify: true,
    });
    const idle = this.caption.textContent;
    this.cy.on("tap", "node[passage]", (event) => this.read(event.target.data("passage")));
    this.cy.on("mouseover", "node", (event) => {
      const { kind, passage, label } = event.target.data();
      this.box.style.cursor = passage ? "pointer" : "";
      const words = passage?.sentence;
      this.caption.textContent = words ? `${label}: ${words}` : label;
      if (kind === "neighbour")
        this.caption.textContent = `${label}, linked by the name “${spelled(passage.name, [label])}”`;
    });
    this.cy.on("mouseout", "node", () => {
      this.box.style.cursor = "";
      this.caption.textContent = idle;
    });
    byId("results").dataset.graph = "drawn";
    this.box.cy = this.cy; // so that the console, and tests, can ask what is drawn
  }
}
