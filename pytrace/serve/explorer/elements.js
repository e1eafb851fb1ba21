// Making and finding elements. Text always goes in as text: nothing that the service sends is ever read as HTML.

/** Return the element with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * Make an element. `attributes` are set as they are called in HTML; `on` holds listeners by event, `true` sets an attribute
 * without a value, and what is null, undefined or false is left out. Children are elements or texts.
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else {
      made.setAttribute(name, value === true ? "" : value);
    }
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** Let arrow keys, Home and End move the focus among what `selector` finds in a list. */
export function arrowKeys(list, selector) {
  list.addEventListener("keydown", (event) => {
    const items = [...list.querySelectorAll(selector)];
    const here = items.indexOf(document.activeElement);
    if (here < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const places = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: items.length - 1 };
    const there = places[event.key];
    if (there === undefined) return;
    event.preventDefault();
    items[Math.max(0, Math.min(there, items.length - 1))].focus();
  });
}

/** Say something to those who hear the page. */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** Write a time as people say it: "26 ms", "3.8 s", "2 min 5 s". */
export function duration(seconds) {
  if (seconds < 0.9995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 99.95) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** Write a number with the word that it counts, in the singular or plural. */
export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Return a location with the last two parts of the file's path and no character offsets; all of it shows at the pointer. */
export function placeLine(where) {
  const short = where.replace(/, characters \d+-\d+$/, "").replace(/^\/(?:[^/,]+\/)+(?=[^/,]+\/[^/,]+)/, "…/");
  return where ? element("span", { class: "place", title: short === where ? null : where }, short) : null;
}

/** Return a text as parts, of which those from start to end of each span are made by `make`; the spans do not overlap. */
export function marked(text, spans, make) {
  const parts = [];
  let at = 0;
  for (const [start, end] of [...spans].sort((a, b) => a[0] - b[0])) {
    if (start < at) continue;
    parts.push(text.slice(at, start), make(text.slice(start, end)));
    at = end;
  }
  return [...parts, text.slice(at)];
}

/** Return a confidence as a word and a percentage, as `pytrace ask` prints it. */
export function confidenceWords({ confidence, certainty }) {
  return confidence == null ? certainty : `${certainty} (${Math.round(100 * confidence)} %)`;
}

/** Write a name as one of the texts has it; links have their names in small letters. */
export function spelled(name, texts) {
  for (const text of texts) {
    const start = text.toLowerCase().indexOf(name.toLowerCase());
    if (name && start >= 0) return text.slice(start, start + name.length);
  }
  return name;
}

/** Return whether the reader of the page wants nothing to move. */
export function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
