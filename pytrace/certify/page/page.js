"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const rows = data.rows;
  const byId = (id) => document.getElementById(id);
  const form = document.querySelector(".filters");
  const svgSpace = document.querySelector("svg").namespaceURI;
  const PAGE = 50;
  const SHORT = 1500;

  // What a state looks like: a word, a colour and an icon, so that colour never speaks alone.
  const MARKS = {
    faithful: ["Faithful", "good", "M3 8.5 6.5 12 13 4.5"],
    unfaithful: ["Unfaithful", "bad", "M4 4 12 12 M12 4 4 12"],
    factual: ["Factual error", "bad", "M4 4 12 12 M12 4 4 12"],
    incoherent: ["Incoherence", "bad", "M1.5 8 H5.5 M10.5 8 H14.5 M9.5 3.5 6.5 12.5"],
    answer: ["Answer error", "bad", "M8 2.5 A5.5 5.5 0 1 0 8 13.5 A5.5 5.5 0 1 0 8 2.5 M4.2 4.2 11.8 11.8"],
    abstained: ["Abstained", "none", "M3 8 H13"],
    unstructured: ["Unstructured", "none", "M2 5 Q5 2 8 5 T14 5 M2 11 Q5 8 8 11 T14 11"],
    supported: ["supported", "good", "M3 8.5 6.5 12 13 4.5"],
    unsupported: ["not supported", "bad", "M4 4 12 12 M12 4 4 12"],
    undecided: ["undecided", "doubt", "M5 5.5 Q5 2.5 8 2.5 T11 5.5 Q11 7 8 8.5 V10 M8 13.4 V13.5"],
    right: ["answer right", "good", "M3 8.5 6.5 12 13 4.5"],
    wrong: ["answer wrong", "bad", "M4 4 12 12 M12 4 4 12"],
    unknown: ["no gold answer", "none", "M3 8 H13"],
  };

  function grow(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return element;
  }
  const make = (tag, attributes, ...children) => grow(document.createElement(tag), attributes, children);
  const shape = (tag, attributes, ...children) => grow(document.createElementNS(svgSpace, tag), attributes, children);
  const count = (number, name) => `${number.toLocaleString("en")} ${name}${number === 1 ? "" : "s"}`;
  const fixed = (number) => (number === null ? "–" : number.toFixed(2));

  function icon(name, label) {
    const hidden = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
    return shape("svg", { class: "icon", viewBox: "0 0 16 16", ...hidden }, shape("path", { d: MARKS[name][2] }));
  }
  const mark = (name) => make("span", { class: `mark ${MARKS[name][1]}` }, icon(name), MARKS[name][0]);
  const answerOf = (row) => (row.right === null ? "unknown" : row.right ? "right" : "wrong");
  const section = (title, ...children) => make("div", {}, make("h4", {}, title), ...children);

  function longText(tag, attributes, text, left) {
    const block = make(tag, { dir: "auto", ...attributes });
    const holder = [block];
    if (text.length > SHORT) {
      const half = text.charCodeAt(SHORT - 1);
      block.textContent = text.slice(0, half >= 0xd800 && half < 0xdc00 ? SHORT - 1 : SHORT) + " …";
      const button = make("button", { type: "button", class: "more" }, `Show all ${count(text.length, "character")}`);
      button.addEventListener("click", () => {
        block.textContent = text;
        block.tabIndex = -1;
        block.focus();
        button.remove();
      });
      holder.push(button);
    } else {
      block.textContent = text;
    }
    if (left) holder.push(make("p", { class: "label" }, `${count(left, "more character")} left out of this page.`));
    return holder;
  }

  function triple(parts) {
    return make("span", { class: "triple" }, make("bdi", {}, parts[0]), make("bdi", { class: "relation" }, parts[1]), make("bdi", {}, parts[2]));
  }

  function bar(name, value, limit) {
    const width = 100 * Math.min(Math.max(value === null ? 0 : value, 0), 1);
    const colour = limit === null || value === null ? "" : value >= limit ? " over" : " under";
    const told = limit === null ? "" : `, threshold ${fixed(limit)}`;
    const drawing = shape("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", role: "img", "aria-label": `${name} ${fixed(value)}${told}` },
      shape("rect", { class: "track", x: 0, y: 4, width: 100, height: 6 }),
      shape("rect", { class: `fill${colour}`, x: 0, y: 4, width, height: 6 }),
      limit === null ? null : shape("rect", { class: "limit", x: 100 * limit - 0.5, y: 0, width: 1, height: 14 }));
    return make("div", {}, make("dt", {}, name), make("dd", {}, drawing, make("span", { class: "number" }, fixed(value))));
  }

  function step(one, place) {
    const match = one.match;
    const words = make("div", { class: "words" },
      make("div", {}, mark(one.status), one.follows ? null : make("span", { class: "label" }, " · does not follow from the step before")),
      longText("p", {}, `${place + 1}. ${one.text}`, 0),
      one.match ? make("div", {}, make("div", { class: "label" }, one.status === "supported" ? "Triple of the graph" : "Nearest triple of the graph"), triple(one.match.triple)) : null,
      one.why ? make("p", { class: "why", dir: "auto" }, one.why) : null,
      match && match.otherRelation ? make("p", { class: "why" }, "It sounds more like the relation ", make("bdi", {}, match.otherRelation), ` (${fixed(match.otherCosine)}).`) : null,
      one.runnerUp ? make("p", { class: "why" }, `Next best (${fixed(one.runnerUp.score)}): `, triple(one.runnerUp.triple)) : null,
      one.entities.length ? make("p", { class: "why" }, "Names found: ", one.entities.map((name, i) => [i ? ", " : "", make("bdi", {}, name)])) : null);
    return make("li", { class: "step" }, words, match ? make("dl", { class: "bars" },
      bar("Score", match.score, data.threshold),
      bar("Cosine", match.cosine, null),
      bar("Head", match.head, data.entityThreshold),
      bar("Tail", match.tail, data.entityThreshold),
      match.relation === null ? null : bar("Relation", match.relation, null),
      match.headFound && match.tailFound ? null : make("p", { class: "label" }, `The step does not name ${match.headFound ? "the tail" : match.tailFound ? "the head" : "head and tail"}.`)) : null);
  }

  function arrow(curve, kind) {
    const [, , cx, cy, x, y] = curve;
    const length = Math.hypot(x - cx, y - cy) || 1;
    const [dx, dy] = [(x - cx) / length, (y - cy) / length];
    const [bx, by] = [x - 8 * dx, y - 8 * dy];
    return shape("path", { class: `arrow ${kind}`, d: `M${x} ${y} L${bx - 4 * dy} ${by + 4 * dx} L${bx + 4 * dy} ${by - 4 * dx} Z` });
  }

  function graph(picture, name) {
    const lines = [];
    const labels = [];
    for (const edge of picture.edges) {
      const [x, y, cx, cy, toX, toY] = edge.curve;
      const d = `M${x} ${y} Q${cx} ${cy} ${toX} ${toY}`;
      const kind = edge.status || (edge.gold ? "only-gold" : "fact");
      if (edge.gold) lines.unshift(shape("path", { class: "band", d }));
      lines.push(shape("path", { class: `line ${kind}`, d }), arrow(edge.curve, kind));
      labels.push(shape("text", { class: `edge-label ${kind}`, x: edge.x, y: edge.y }, shape("title", {}, edge.name), edge.label));
    }
    const boxes = picture.nodes.map((node) => shape("g", {}, shape("title", {}, node.name),
      node.isLeaf ? null : shape("rect", { class: "box", x: node.x - node.width / 2, y: node.y - 14, width: node.width, height: 28, rx: 14 }),
      shape("text", { class: node.isLeaf ? "leaf" : null, x: node.x, y: node.isLeaf ? node.y + 8 : node.y }, node.label)));
    return shape("svg", { class: "graph", width: picture.width, height: picture.height, viewBox: `0 0 ${picture.width} ${picture.height}`, role: "img", "aria-label": name }, lines, labels, boxes);
  }

  function legend(picture) {
    const used = (kind) => picture.edges.some((edge) => edge.status === kind);
    const entry = (kind, words, band) => make("li", {}, shape("svg", { class: "graph", viewBox: "0 0 28 12", "aria-hidden": "true" },
      band ? shape("path", { class: "band", d: "M5 6 H23" }) : shape("path", { class: `line ${kind}`, d: "M0 6 H28" })), words);
    return make("ul", { class: "legend" },
      used("supported") ? entry("supported", "a step that the graph supports") : null,
      used("unsupported") ? entry("unsupported", "nearest triple of a step that it does not") : null,
      used("undecided") ? entry("undecided", "nearest triple of an undecided step") : null,
      picture.edges.some((edge) => edge.gold) ? entry("", "gold path", true) : null,
      picture.edges.some((edge) => !edge.status && !edge.gold) ? entry("fact", "other facts of the graph") : null);
  }

  function body(row) {
    const kind = row.error || row.kind;
    const fact = (name, ...values) => make("div", {}, make("dt", {}, name), make("dd", { dir: "auto" }, ...values));
    const gold = row.gold.join(", ") + (row.moreGold ? ` and ${row.moreGold.toLocaleString("en")} more` : "");
    const facts = make("dl", { class: "facts" },
      fact("Gold answer", gold || "not known"),
      fact("Stated answer", row.answer || "none", mark(answerOf(row))),
      row.reached ? fact("Steps end at", row.reached) : null,
      row.distance === null ? null : fact("Edit distance", `${row.distance}${row.rate === null ? "" : ` (rate ${fixed(row.rate)})`} to the nearest gold path`),
      row.path.length ? fact("Gold path", make("ol", { class: "path" }, row.path.map((parts) => make("li", {}, triple(parts))))) : null,
      row.id ? fact("Identifier", row.id) : null);
    const steps = row.steps.length
      ? [make("ol", { class: "step-list" }, row.steps.map(step)), row.moreSteps ? make("p", { class: "label" }, `${count(row.moreSteps, "more step")} left out of this page.`) : null]
      : [make("p", { class: "label" }, "No steps could be made out.")];
    const drawing = row.picture
      ? [make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Drawing of the graph" }, graph(row.picture, `Graph around the response: ${row.picture.edges.map((edge) => edge.name).join("; ")}`)), legend(row.picture)]
      : [make("p", { class: "label" }, row.number > data.pictures ? `The graph is drawn for the first ${data.pictures.toLocaleString("en")} responses of a page only.` : "There is no triple to draw.")];
    return make("div", { class: "body" },
      make("div", { class: "verdict" }, make("div", {}, mark(kind), row.error ? make("span", { class: "label" }, " · unfaithful") : null), make("p", { dir: "auto" }, row.why)),
      make("div", { class: "two" }, section("Response", ...longText("p", { class: "text" }, row.text || "(empty)", row.left)), section("Answer", facts)),
      section("Steps", ...steps),
      section("In the graph", ...drawing));
  }

  // Only what is looked at is drawn, so that ten thousand responses cost no more than fifty.
  function fill(details, row) {
    if (!details.open || details.children.length > 1) return;
    details.append(body(row));
    const view = details.querySelector(".scroll");
    if (view) view.scrollLeft = row.picture.nodes[0].x - view.clientWidth / 2; // on a small screen, begin at the path
  }

  function item(row) {
    const answer = answerOf(row);
    const trail = make("span", { class: "trail" },
      row.steps.length ? make("span", { class: "steps" }, row.steps.slice(0, 8).map((one, place) => make("span", { class: `mark ${MARKS[one.status][1]}` }, icon(one.status, `step ${place + 1} ${MARKS[one.status][0]}`)))) : null,
      make("span", { class: `mark ${MARKS[answer][1]}` }, icon(answer), make("span", { class: "answer-word" }, MARKS[answer][0])));
    const details = make("details", { class: "response", "data-number": row.number, "data-kind": row.kind, "data-error": row.error },
      make("summary", {}, mark(row.error || row.kind), make("span", { class: "question", dir: "auto" }, row.question || "(no question)"), trail));
    details.addEventListener("toggle", () => fill(details, row));
    return details;
  }

  rows.forEach((row, place) => { row.number = place + 1; });
  let state = {};
  let shown = [];

  function matches(row) {
    if (state.kind && row.kind !== state.kind) return false;
    if (state.error && row.error !== state.error) return false;
    if (state.answer && answerOf(row) !== state.answer) return false;
    if (!state.q) return true;
    row.words ??= [row.id, row.question, row.text, row.answer, ...row.gold].join("\n").toLowerCase();
    return state.q.toLowerCase().split(/\s+/).every((word) => row.words.includes(word));
  }

  function render() {
    shown = rows.filter(matches);
    const pages = Math.max(Math.ceil(shown.length / PAGE), 1);
    if (state.open) {
      const place = shown.findIndex((row) => row.number === state.open);
      if (place >= 0) state.page = Math.floor(place / PAGE) + 1;
    }
    state.page = Math.min(Math.max(state.page || 1, 1), pages);
    const first = (state.page - 1) * PAGE;
    const part = shown.slice(first, first + PAGE);
    byId("list").replaceChildren(...part.map(item));
    const all = shown.length === rows.length ? "" : ` of ${rows.length.toLocaleString("en")}`;
    byId("status").textContent = shown.length === 0
      ? rows.length ? "No response fits; show all, or look for fewer words." : "There is no response."
      : pages > 1
        ? `${(first + 1).toLocaleString("en")} to ${(first + part.length).toLocaleString("en")} of ${count(shown.length, "response")}${all ? ` that fit,${all} in all` : ""}`
        : `${shown.length.toLocaleString("en")}${all} ${rows.length === 1 ? "response" : "responses"}`;
    byId("pager").hidden = pages === 1;
    byId("place").textContent = `Page ${state.page.toLocaleString("en")} of ${pages.toLocaleString("en")}`;
    byId("previous").disabled = state.page === 1;
    byId("next").disabled = state.page === pages;
    for (const name of ["q", "kind", "error", "answer"]) {
      if (form.elements[name].value !== state[name]) form.elements[name].value = state[name];
    }
    const opened = state.open && byId("list").querySelector(`[data-number="${state.open}"]`);
    if (opened) {
      opened.open = true;
      fill(opened, rows[state.open - 1]);
      opened.scrollIntoView();
    }
  }

  function read() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const one = (name, allowed) => (allowed.includes(asked.get(name)) ? asked.get(name) : "");
    const number = (name) => (/^\d{1,9}$/.test(asked.get(name) || "") ? Number(asked.get(name)) : 0);
    state = {
      q: (asked.get("q") || "").trim(),
      kind: one("kind", ["faithful", "unfaithful", "abstained", "unstructured"]),
      error: one("error", ["factual", "incoherent", "answer"]),
      answer: one("answer", ["right", "wrong", "unknown"]),
      page: number("page"),
      open: number("open"),
    };
    render();
  }

  function write() {
    const kept = new URLSearchParams();
    for (const name of ["q", "kind", "error", "answer"]) if (state[name]) kept.set(name, state[name]);
    if (state.page > 1) kept.set("page", state.page);
    history.replaceState(null, "", `#${kept}`);
  }

  function change() {
    state = { open: 0, page: 1 };
    for (const name of ["q", "kind", "error", "answer"]) state[name] = form.elements[name].value.trim();
    render();
    write();
  }

  function turn(by) {
    state.open = 0;
    state.page += by;
    render();
    write();
    byId("responses").scrollIntoView();
  }

  let waiting = 0;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(change, 150);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    clearTimeout(waiting);
    waiting = setTimeout(change);
  });
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  window.addEventListener("hashchange", () => {
    if (location.hash === "#responses") return;
    read();
    if (location.hash && !state.open) byId("responses").scrollIntoView();
  });
  read();
})();
