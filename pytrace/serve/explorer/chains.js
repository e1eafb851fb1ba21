// Chains as lists of numbered steps: each with its passage, its sentence, and what leads on or answers marked in it.

import { arrowKeys, element, marked, placeLine } from "./elements.js";

/** Return where a step is: its passage, and the sentence of it; null if no passage is known. */
export function placeOf(step, sources) {
  const source = sources[step.source];
  if (!source) return null;
  const { id, document, title } = source;
  return { id, document, title, sentence: step.sentence, sentence_index: step.sentence_index ?? -1 };
}

/** Return the steps of a chain as a list. `read(place)` opens a passage, `near(place)` shows the passages that it is linked with. */
export function stepList({ steps }, sources, { read, near }) {
  const list = element(
    "ol",
    { class: "thread" },
    steps.map((step, index) => stepRow(step, index + 1, steps, sources, { read, near })),
  );
  arrowKeys(list, "button.step");
  return list;
}

function stepRow(step, number, steps, sources, { read, near }) {
  const place = placeOf(step, sources);
  const words = [
    element(
      "span",
      { class: "row-title" },
      place ? place.title || "Untitled" : "",
      " ",
      element("span", { class: "soft" }, origin(step)),
    ),
    step.sentence ? element("q", {}, sentence(step, number, steps)) : null,
    step.triple ? element("span", { class: "triple" }, step.triple.join(" → ")) : null,
    placeLine(step.location ?? ""),
  ];
  if (!place) return element("li", {}, element("div", { class: "step" }, words));
  return element(
    "li",
    { "data-passage": place.id },
    element("button", { type: "button", class: "step", on: { click: () => read(place) } }, words),
    element(
      "button",
      { type: "button", class: "link", "aria-label": `Neighbours of ${place.title}`, on: { click: () => near(place) } },
      "Neighbours",
    ),
  );
}

function origin({ after = 0, link = "" }) {
  if (!after) return "found by the question";
  return link ? `by “${link}” in step ${after}` : `from step ${after}`;
}

/** Return the sentence of a step, in which the answer and the names that lead to later steps are marked. */
function sentence(step, number, steps) {
  if (step.answer) return marked(step.sentence, [step.answer], (words) => element("mark", { class: "here" }, words));
  const spans = [];
  for (const { after = 0, link = "" } of steps) {
    const start = link && after === number ? step.sentence.toLowerCase().indexOf(link.toLowerCase()) : -1;
    if (start >= 0) spans.push([start, start + link.length]);
  }
  return marked(step.sentence, spans, (words) => element("b", { class: "name" }, words));
}
