// The questions that were asked here, with their results, so that they can be seen again without asking anew.

import { arrowKeys, byId, count, element } from "./elements.js";
import { furnish } from "./panes.js";

const MOST = 50;
const VERSION = 1; // of results, in pytrace/results.py
const KEY = `pytrace.history:${location.pathname}`;

/** Return the stored questions, the newest first; those with results of another version of the schema are left out. */
export function storedResults() {
  try {
    const stored = JSON.parse(localStorage.getItem(KEY)) ?? [];
    return stored.filter(({ search, answer }) => (answer ?? search)?.version === VERSION);
  } catch {
    return [];
  }
}

/** Store a question with its results; the oldest leave, first beyond 50, then as long as the browser has no room. */
export function storeResult({ evidence, ...asked }) {
  const results = [asked, ...storedResults()].slice(0, MOST);
  while (results.length) {
    try {
      localStorage.setItem(KEY, JSON.stringify(results));
      break;
    } catch {
      results.pop();
    }
  }
  if (!byId("history").hidden) drawHistory();
}

let show = () => {};

/** Say what shows a stored result: `shown(result)` is called with what is clicked. */
export function setUpHistory(shown) {
  show = shown;
}

/** Draw the pane as the stored results are now. */
export function drawHistory() {
  const body = furnish(byId("history"), "History");
  const results = storedResults();
  if (!results.length) {
    body.append(
      element(
        "p",
        { class: "empty" },
        "No questions yet. Those that you ask are kept in this browser, with what was found.",
      ),
    );
    return;
  }
  const list = element("ul", { class: "rows" }, results.map(row));
  arrowKeys(list, "button");
  body.append(clearing(results.length), list);
}

function row(result) {
  const asked = new Date(result.at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const by = result.kind === "search" ? "search only" : result.answer?.method || result.request.method;
  return element(
    "li",
    {},
    element(
      "button",
      { type: "button", class: "row", on: { click: () => show(result) } },
      element("span", { class: "row-title" }, result.request.question),
      result.answer ? element("span", { class: "row-answer" }, result.answer.answer || "no answer") : null,
      element("span", { class: "row-facts" }, [asked, by].filter(Boolean).join(" · ")),
    ),
  );
}

function clearing(number) {
  const line = element("p", { class: "tools" });
  const ask = element("button", { type: "button", on: { click: confirm } }, "Clear history");
  line.append(ask);
  return line;

  function confirm() {
    const keep = element("button", { type: "button", on: { click: drawAgain } }, "Keep");
    const clear = element("button", { type: "button", class: "danger", on: { click: erase } }, "Clear");
    line.replaceChildren(element("span", { role: "alert" }, `Forget ${count(number, "question")}?`), clear, keep);
    keep.focus();
  }

  function drawAgain() {
    line.replaceChildren(ask);
    ask.focus();
  }

  function erase() {
    try {
      localStorage.removeItem(KEY);
    } catch {
      // Nothing was stored, then.
    }
    drawHistory();
    byId("history-title").focus();
  }
}
