// Passages as a list: title, two lines of text around the first word of the question, and location.

import { arrowKeys, element, marked, placeLine } from "./elements.js";

const FIRST = 5; // passages that are listed at once
const BEFORE = 60; // characters of an excerpt before its first matched word
const LONGEST = 400; // characters of an excerpt; the style shows two lines of it
const WORD = /[\p{L}\p{N}]+(?:['’_.-][\p{L}\p{N}]+)*/gu;
const STOP = new Set(
  `a about all an and any are as at be been but by can could did do does for from had has have he her him his how i if in
  into is it its many may me much my no not of on or our out she should so some such than that the their them then there
  these they this those to up was we were what when where which who whom whose why will with would you your`.split(/\s+/),
);

/** Return passages as a list, of which the first ones are shown at once. `read(passage)` opens one in its document. */
export function passageList(sources, question, read) {
  const list = element("ol", { class: "rows" });
  const put = (some) => list.append(...some.map((source) => row(source, question, read)));
  arrowKeys(list, "button.row");
  put(sources.slice(0, FIRST));
  if (sources.length <= FIRST) return list;
  const more = element("button", { type: "button", class: "link" }, `Show all ${sources.length}`);
  more.addEventListener("click", () => {
    put(sources.slice(FIRST));
    list.children[FIRST].querySelector("button").focus();
    more.remove();
  });
  return [list, more];
}

function row(source, question, read) {
  return element(
    "li",
    {},
    element(
      "button",
      { type: "button", class: "row", on: { click: () => read(source) } },
      element("span", { class: "row-title" }, source.title || "Untitled"),
      element("span", { class: "excerpt" }, excerpt(source.text, question)),
      placeLine(source.location ?? ""),
    ),
  );
}

/** Return a part of a text that begins shortly before the first word of the question, these words in bold. */
export function excerpt(text, question) {
  const spans = matches(text, question);
  const first = spans[0]?.[0] ?? 0;
  const start = first > BEFORE ? text.lastIndexOf(" ", first - BEFORE) + 1 : 0;
  const shown = text.slice(start, start + LONGEST);
  const moved = spans.map(([from, to]) => [from - start, to - start]).filter(([, to]) => to <= shown.length);
  return [start ? "… " : "", ...marked(shown, moved, (words) => element("b", {}, words))];
}

/** Return start and end of the words of a text that the question has, too, apart from words such as "the". */
function matches(text, question) {
  const asked = new Set([...question.matchAll(WORD)].map(([word]) => stem(word)).filter((word) => !STOP.has(word)));
  return [...text.matchAll(WORD)]
    .filter(([word]) => asked.has(stem(word)))
    .map(({ 0: word, index }) => [index, index + word.length]);
}

/** Return a word in small letters without an English ending. */
function stem(word) {
  const small = word.toLowerCase().replace(/['’]s$/u, "");
  return STOP.has(small) ? small : small.replace(/(?<=\w{3})(?:ies|ing|ed|es|s|y)$/u, "");
}
