// What the reader of a method was given: chains of evidence, the votes of passages, and the text itself.

import { arrowKeys, element, placeLine } from "./elements.js";

/** Return the evidence of a result as a section. `read(unit)` opens the passage that a unit stands in. */
export function evidenceSection(result, read) {
  const { evidence } = result;
  const list = element(
    "ol",
    { class: "chains" },
    evidence.chains.map((found, index) => chain(found, index, read)),
  );
  arrowKeys(list, "button.step");
  return element(
    "section",
    { class: "card" },
    element("h2", {}, "Evidence"),
    element("p", { class: "lead" }, `What the answer rests on: ${evidence.kind}.`),
    notes(evidence.notes ?? []),
    evidence.chains.length ? list : null,
    votes(evidence.votes, result),
    context(evidence.context),
  );
}

/** Return remarks as a list, or nothing if there are none. */
export function notes(texts) {
  return texts.length
    ? element(
        "ul",
        { class: "notes" },
        texts.map((text) => element("li", {}, text)),
      )
    : null;
}

function chain({ score, units }, index, read) {
  const likely = `log-probability ${score.toFixed(2).replace("-", "−")}`;
  return element(
    "li",
    {},
    element("h3", {}, `Chain ${index + 1} `, element("span", { class: "soft" }, likely)),
    element(
      "ol",
      { class: "thread" },
      units.map((found) => unit(found, read)),
    ),
  );
}

function unit(found, read) {
  const words = [
    found.title ? element("span", { class: "row-title" }, found.title) : null,
    element("q", {}, found.text),
    placeLine(found.where),
  ];
  if (!found.id) return element("li", {}, element("div", { class: "step" }, words));
  const button = element("button", { type: "button", class: "step", on: { click: () => read(found) } }, words);
  return element("li", {}, button);
}

function votes(counted, result) {
  const found = Object.entries(counted).sort((a, b) => b[1] - a[1]);
  if (!found.length) return null;
  const passages = [...(result.seeds?.seeds ?? []), ...(result.chains?.passages ?? [])];
  const titles = new Map(passages.map(({ id, title }) => [id, title]));
  const texts = found.map(([id, number]) => `${titles.get(id) || id} (${number})`);
  return element("p", { class: "soft" }, `Votes of the chains: ${texts.join(", ")}.`);
}

function context(texts) {
  if (!texts.length) return element("p", { class: "empty" }, "The method found no evidence.");
  const list = element(
    "ol",
    { class: "context" },
    texts.map((text) => element("li", {}, text)),
  );
  return element("details", {}, element("summary", {}, "As the reader was given it"), list);
}
