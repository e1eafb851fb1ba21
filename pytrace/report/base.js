"use strict";
// What every page has: elements, drawings, long texts, and a list that is filtered, leafed through and kept in the address.
const page = (() => {
  const PAGE = 50;
  const SHORT = 1500;
  const pattern = document.createElement("template");
  pattern.innerHTML = "<svg></svg>";
  const svgSpace = pattern.content.firstChild.namespaceURI;
  const byId = (id) => document.getElementById(id);

  function grow(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return element;
  }
  const make = (tag, attributes, ...children) => grow(document.createElement(tag), attributes, children);
  const shape = (tag, attributes, ...children) => grow(document.createElementNS(svgSpace, tag), attributes, children);
  const whole = (number) => number.toLocaleString("en");
  const count = (number, name) => `${whole(number)} ${name}${number === 1 ? "" : "s"}`;
  const fixed = (number) => (number === null ? "–" : number.toFixed(2));
  const fact = (name, ...values) => make("div", {}, make("dt", {}, name), make("dd", { dir: "auto" }, ...values));
  const section = (title, ...children) => make("div", {}, make("h4", {}, title), ...children);

  // What a state looks like: a word, a colour and an icon, so that colour never speaks alone.
  const ICONS = {
    yes: "M3 8.5 6.5 12 13 4.5",
    no: "M4 4 12 12 M12 4 4 12",
    dash: "M3 8 H13",
  };
  function icon(path, label) {
    const hidden = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
    return shape("svg", { class: "icon", viewBox: "0 0 16 16", ...hidden }, shape("path", { d: path }));
  }

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

  // Compressed JSON, as `packed_json` writes it.
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // Curves are x and y of their start, one control point or two, and their end.
  function path(curve) {
    const [x, y, ...rest] = curve;
    return `M${x} ${y} ${rest.length === 4 ? "Q" : "C"}${rest.join(" ")}`;
  }

  function arrow(curve, kind) {
    const [cx, cy, x, y] = curve.slice(-4);
    const length = Math.hypot(x - cx, y - cy) || 1;
    const [dx, dy] = [(x - cx) / length, (y - cy) / length];
    const [bx, by] = [x - 8 * dx, y - 8 * dy];
    return shape("path", { class: `arrow ${kind}`, d: `M${x} ${y} L${bx - 4 * dy} ${by + 4 * dx} L${bx + 4 * dy} ${by - 4 * dx} Z` });
  }

  // A drawing of nodes in boxes and labelled edges: `kind` is a class, `band` the class of what lies under an edge, and a place is
  // that of a middle. An edge is a `curve`, or any path `d` with the `tip` that its arrow points along.
  function graph(picture, name) {
    const lines = [];
    const labels = [];
    for (const edge of picture.edges) {
      const d = edge.d || path(edge.curve);
      if (edge.band) lines.unshift(shape("path", { class: edge.band, d }));
      lines.push(shape("path", { class: `line ${edge.kind}`, d }), arrow(edge.tip || edge.curve, edge.kind));
      labels.push(shape("text", { class: `edge-label ${edge.kind}`, x: edge.x, y: edge.y }, shape("title", {}, edge.name), edge.label));
    }
    const boxes = picture.nodes.map((node) => {
      const height = node.height || 28;
      const words = node.lines || [node.label];
      return shape("g", { class: node.kind }, shape("title", {}, node.name),
        node.isLeaf ? null : shape("rect", { class: "box", x: node.x - node.width / 2, y: node.y - height / 2, width: node.width, height, rx: 14 }),
        words.map((line, place) => shape("text", { class: node.isLeaf ? "leaf" : words.length > 1 ? place ? "further" : "first" : null, x: node.x, y: (node.isLeaf ? node.y + 8 : node.y) + 16 * (place - (words.length - 1) / 2) }, line)));
    });
    return shape("svg", { class: "graph", width: picture.width, height: picture.height, viewBox: `0 0 ${picture.width} ${picture.height}`, role: "img", "aria-label": name }, lines, labels, boxes, picture.extra || []);
  }
  const legendEntry = (kind, words, band) => make("li", {}, shape("svg", { class: "graph", viewBox: "0 0 28 12", "aria-hidden": "true" },
    band ? shape("path", { class: band, d: "M5 6 H23" }) : shape("path", { class: `line ${kind}`, d: "M0 6 H28" })), words);
  const drawing = (name, picture, told) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, graph(picture, told));

  // A list of rows, each a <details> whose body is made when it is opened, so that ten thousand cost no more than fifty. The
  // form's fields filter it; what differs from how the page begins stands in the address. `matches` and `item` are given the
  // state of all fields, `item` returns a <details>, and `fill` gives an open one its body.
  function listing({ rows, noun, matches, item, fill, order, changed }) {
    const form = document.querySelector(".filters");
    const heading = document.querySelector("h2:has(~ .filters)") || document.querySelector("h2");
    const fields = [...form.elements].filter((field) => field.name);
    const initial = Object.fromEntries(fields.map((field) => [field.name, field.value]));
    let state = {};
    rows.forEach((row, place) => { row.number = place + 1; });

    function render() {
      const shown = rows.filter((row) => matches(row, state));
      if (order) order(shown, state);
      const pages = Math.max(Math.ceil(shown.length / PAGE), 1);
      if (state.open) {
        const place = shown.findIndex((row) => row.number === state.open);
        if (place >= 0) state.page = Math.floor(place / PAGE) + 1;
      }
      state.page = Math.min(Math.max(state.page || 1, 1), pages);
      const first = (state.page - 1) * PAGE;
      const part = shown.slice(first, first + PAGE);
      byId("list").replaceChildren(...part.map((row) => {
        const details = item(row, state);
        details.dataset.number = row.number;
        details.addEventListener("toggle", () => open(details, row));
        return details;
      }));
      const all = shown.length === rows.length ? "" : ` of ${whole(rows.length)}`;
      byId("status").textContent = shown.length === 0
        ? rows.length ? `No ${noun} fits; show all, or look for fewer words.` : `There is no ${noun}.`
        : pages > 1
          ? `${whole(first + 1)} to ${whole(first + part.length)} of ${count(shown.length, noun)}${all ? ` that fit,${all} in all` : ""}`
          : `${whole(shown.length)}${all} ${rows.length === 1 ? noun : `${noun}s`}`;
      byId("pager").hidden = pages === 1;
      byId("place").textContent = `Page ${whole(state.page)} of ${whole(pages)}`;
      byId("previous").disabled = state.page === 1;
      byId("next").disabled = state.page === pages;
      for (const field of fields) if (field.value !== state[field.name]) field.value = state[field.name];
      if (changed) changed(state, shown);
      const opened = state.open && byId("list").querySelector(`[data-number="${state.open}"]`);
      if (opened) {
        opened.open = true;
        open(opened, rows[state.open - 1]);
        opened.scrollIntoView();
      }
    }

    function open(details, row) {
      if (!details.open || details.children.length > 1) return;
      fill(details, row, state);
    }

    function read() {
      const asked = new URLSearchParams(location.hash.slice(1));
      const number = (name) => (/^\d{1,9}$/.test(asked.get(name) || "") ? Number(asked.get(name)) : 0);
      state = { page: number("page"), open: number("open") };
      for (const field of fields) {
        const given = asked.get(field.name);
        const allowed = field.options ? [...field.options].some((option) => option.value === given) : given !== null;
        state[field.name] = allowed ? given.trim() : initial[field.name];
      }
      render();
    }

    function write() {
      const kept = new URLSearchParams();
      for (const field of fields) if (state[field.name] !== initial[field.name]) kept.set(field.name, state[field.name]);
      if (state.page > 1) kept.set("page", state.page);
      history.replaceState(null, "", `#${kept}`);
    }

    function change() {
      state = { open: 0, page: 1 };
      for (const field of fields) state[field.name] = field.value.trim();
      render();
      write();
    }

    function turn(by) {
      state.open = 0;
      state.page += by;
      render();
      write();
      heading.scrollIntoView();
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
      if (location.hash === `#${heading.id}`) return;
      read();
      if (location.hash && !state.open) heading.scrollIntoView();
    });
    read();
  }

  // Whether all words of a search stand in a text, whose lower-case form is kept with the row.
  function holds(row, search, text) {
    if (!search) return true;
    row.words ??= text().toLowerCase();
    return search.toLowerCase().split(/\s+/).every((word) => row.words.includes(word));
  }

  return { ICONS, arrow, byId, count, drawing, fact, fixed, graph, holds, icon, legendEntry, listing, longText, make, path, section, shape, triple, unpack, whole };
})();
