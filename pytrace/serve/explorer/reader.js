// A passage where it stands: its document as a whole, the sentence marked, and the picture of its page where there are pages.

import { byId, count, element, placeLine, still } from "./elements.js";
import { furnish, openPane } from "./panes.js";
import { get, picture } from "./service.js";

const SENTENCE_END = /[.!?…:;。！？।]["'”’»)\]]*$/;

let shownPicture = null; // the address of the picture that is shown, to be revoked
let reading = null; // ends requests for what is no longer to be seen

/**
 * Open a document at a passage. `place` has the document's id, and may have the passage's and the index of its sentence;
 * `found` has, by passage, the sentences that the result has.
 */
export async function readDocument(place, found = new Map()) {
  reading?.abort();
  reading = new AbortController();
  const { signal } = reading;
  const pane = byId("reader");
  pane.classList.remove("with-pages");
  const body = furnish(pane, place.title || "Document");
  body.append(element("p", { class: "waiting", role: "status" }, "Opening the document …"));
  openPane(pane);
  try {
    const read = await get("v1/documents/text", { id: place.document }, signal);
    draw(read, place, found, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    const text = error.status === 404 ? "This document is no longer in the index." : error.message;
    body.replaceChildren(element("p", { class: "notice bad", role: "alert" }, text));
  }
}

function draw(read, place, found, signal) {
  const pane = byId("reader");
  const body = furnish(pane, read.title || place.title || "Untitled");
  const article = element("article", { class: "text", tabindex: "-1" }, passages(read, place, found));
  body.append(facts(read));
  pane.classList.toggle("with-pages", read.pages);
  if (read.pages) {
    const pages = new PagePictures(read, article, signal);
    body.append(element("div", { class: "spread" }, pages.figure, article));
    pages.show(pageOf(read, place));
  } else {
    body.append(article);
  }
  pane.querySelector("h2").focus({ preventScroll: true });
  const goal = article.querySelector("mark.here") ?? article.querySelector(".passage.here");
  goal?.scrollIntoView({ block: "center", behavior: still() ? "auto" : "smooth" });
}

function facts(read) {
  const known = Object.entries(read.metadata ?? {}).map(([name, value]) => `${name}: ${value}`);
  return element(
    "div",
    { class: "about" },
    placeLine(read.source),
    element("p", { class: "place" }, [count(read.passages, "passage"), ...known].join(" · ")),
  );
}

function pageOf(read, place) {
  const passage = read.text.find((one) => one.id === place.id) ?? read.text[0];
  return passage?.pages[place.sentence_index ?? 0] ?? passage?.page ?? 1;
}

function passages(read, place, found) {
  let headings = [];
  let page = null;
  return read.text.flatMap((passage) => {
    const parts = [];
    const fresh = passage.headings.findIndex((heading, level) => heading !== headings[level]);
    if (fresh >= 0) {
      passage.headings.slice(fresh).forEach((heading, index) => {
        parts.push(element(`h${Math.min(fresh + index + 3, 6)}`, {}, heading));
      });
    }
    headings = passage.headings;
    const here = passage.id === place.id;
    const sentences = new Set(found.get(passage.id));
    if (here && place.sentence_index >= 0) sentences.add(place.sentence_index);
    const classes = ["passage", here ? "here" : "", found.has(passage.id) ? "found" : ""].filter(Boolean).join(" ");
    const section = element("div", { class: classes, "data-passage": passage.id });
    let paragraph = element("p");
    passage.sentences.forEach((sentence, index) => {
      // A heading, or a line of a list, is a sentence without an end; it stands on a line of its own.
      const line = !SENTENCE_END.test(sentence) && passage.sentences.length > 1;
      if ((line || paragraph.classList.contains("line")) && paragraph.childNodes.length) {
        section.append(paragraph);
        paragraph = element("p");
      }
      if (line) paragraph.classList.add("line");
      const at = passage.pages[index] ?? passage.page;
      if (at !== null && at !== page)
        paragraph.append(element("span", { class: "page-number", "data-page": at }, `page ${at}`), " ");
      page = at;
      const marked = here && index === place.sentence_index;
      const text = sentences.has(index) ? element("mark", { class: marked ? "here" : "" }, sentence) : sentence;
      paragraph.append(text, " ");
    });
    section.append(paragraph);
    return [...parts, section];
  });
}

/** The picture of one page at a time. */
class PagePictures {
  constructor(read, article, signal) {
    this.read = read;
    this.article = article;
    this.signal = signal;
    const numbers = read.text.flatMap((passage) => [passage.page ?? 1, ...passage.pages]);
    this.last = Math.max(1, ...numbers);
    this.image = element("div", { class: "picture" });
    this.number = element("span", { role: "status" });
    this.up = element(
      "button",
      { type: "button", class: "icon", "aria-label": "Page before", on: { click: () => this.turn(-1) } },
      "↑",
    );
    this.down = element(
      "button",
      { type: "button", class: "icon", "aria-label": "Page after", on: { click: () => this.turn(1) } },
      "↓",
    );
    this.figure = element(
      "figure",
      { class: "page" },
      element("figcaption", {}, this.up, this.number, this.down, this.#fold()),
      this.image,
    );
  }

  #fold() {
    const fold = element("button", { type: "button", class: "fold link", "aria-expanded": "false" }, "Show page");
    fold.addEventListener("click", () => {
      const open = this.figure.classList.toggle("open");
      fold.setAttribute("aria-expanded", String(open));
      fold.textContent = open ? "Hide page" : "Show page";
    });
    return fold;
  }

  turn(by) {
    this.show(this.page + by);
    this.article
      .querySelector(`[data-page="${this.page}"]`)
      ?.scrollIntoView({ block: "start", behavior: still() ? "auto" : "smooth" });
  }

  async show(page) {
    this.page = page;
    this.number.textContent = `Page ${page} of ${this.last}`;
    this.up.disabled = page <= 1;
    this.down.disabled = page >= this.last;
    this.image.replaceChildren(element("p", { class: "waiting" }, "Drawing the page …"));
    let address;
    try {
      address = await picture("v1/documents/page", { id: this.read.id, page }, this.signal);
    } catch (error) {
      if (error.name === "AbortError" || page !== this.page) return;
      this.image.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
      return;
    }
    if (page !== this.page) {
      URL.revokeObjectURL(address);
      return;
    }
    if (shownPicture) URL.revokeObjectURL(shownPicture);
    shownPicture = address;
    this.image.replaceChildren(element("img", { src: address, alt: `Page ${page} of ${this.read.title}` }));
  }
}
