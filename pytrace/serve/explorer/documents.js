// The documents of the index: a list with filter and pages, files added one after another, removal after a question.

import { announce, arrowKeys, byId, count, element, placeLine } from "./elements.js";
import { furnish } from "./panes.js";
import { get, remove, ServiceError, upload } from "./service.js";

const PAGE = 20;

/** The pane of documents. `read(place)` opens a document, `changed()` is called when the index has changed. */
export class Documents {
  constructor({ read, changed }) {
    this.read = read;
    this.changed = changed;
    this.info = null;
    this.offset = 0;
    this.query = "";
    this.waiting = Promise.resolve(); // uploads go one after another
    this.uploads = element("ul", { class: "uploads", "aria-label": "Files added" });
  }

  /** Fill the pane anew. */
  open() {
    this.body = furnish(byId("documents"), "Documents");
    this.list = element("div", { class: "list", "aria-live": "polite" });
    let delay;
    const filter = element("input", {
      type: "search",
      id: "filter",
      placeholder: "Title or file",
      on: {
        input: (event) => {
          clearTimeout(delay);
          delay = setTimeout(() => this.#page(0, event.target.value.trim()), 200);
        },
      },
    });
    filter.value = this.query;
    this.body.append(
      element("label", { class: "filter", for: "filter" }, "Filter", filter),
      this.#adding(),
      this.uploads,
      this.list,
    );
    this.refresh();
  }

  #adding() {
    if (this.info?.read_only)
      return element("p", { class: "place" }, "This service does not let documents be added or removed.");
    const field = element("input", {
      type: "file",
      multiple: true,
      class: "hidden",
      id: "files",
      accept: (this.info?.formats ?? []).map((format) => `.${format.replace(/^\./, "")}`).join(",") || null,
      on: {
        change: () => {
          this.add([...field.files]);
          field.value = "";
        },
      },
    });
    return element(
      "p",
      { class: "tools" },
      field,
      element("label", { for: "files", class: "button" }, "Add files"),
      element("span", { class: "soft" }, "or drop them anywhere on this page"),
    );
  }

  #page(offset, query = this.query) {
    this.offset = offset;
    this.query = query;
    this.refresh();
  }

  /** Read the list anew. */
  async refresh() {
    if (!this.list) return;
    this.reading?.abort();
    this.reading = new AbortController();
    if (!this.list.children.length) this.list.append(element("p", { class: "waiting" }, "Reading the list …"));
    try {
      const found = await get(
        "v1/documents",
        { offset: this.offset, limit: PAGE, query: this.query },
        this.reading.signal,
      );
      if (!found.documents.length && this.offset > 0) return this.#page(Math.max(0, this.offset - PAGE));
      this.#draw(found);
    } catch (error) {
      if (error.name !== "AbortError")
        this.list.replaceChildren(element("p", { class: "notice bad", role: "alert" }, error.message));
    }
  }

  #draw({ total, documents }) {
    if (!total) {
      const text = this.query
        ? `No document matches “${this.query}”.`
        : "The index is empty. Add files to ask about them.";
      this.list.replaceChildren(element("p", { class: "empty" }, text));
      return;
    }
    const rows = element(
      "ul",
      { class: "rows" },
      documents.map((document) => this.#row(document)),
    );
    arrowKeys(rows, "button.row");
    this.list.replaceChildren(rows, this.#paging(total, documents.length));
  }

  #row(document) {
    const item = element("li", { class: "with-tool" });
    const title = document.title || document.id;
    const open = element(
      "button",
      { type: "button", class: "row", on: { click: () => this.read({ document: document.id, title }) } },
      element("span", { class: "row-title" }, title),
      placeLine(document.source),
      element("span", { class: "row-facts" }, count(document.passages, "passage")),
    );
    const away = element(
      "button",
      {
        type: "button",
        class: "link",
        "aria-label": `Remove ${title}`,
        on: { click: () => this.#confirm(item, document, away) },
      },
      "Remove",
    );
    item.append(open, this.info?.read_only ? "" : away);
    return item;
  }

  #confirm(item, document, away) {
    const title = document.title || document.id;
    const before = [...item.childNodes];
    const back = (event) => {
      event?.stopPropagation();
      item.replaceChildren(...before);
      away.focus();
    };
    const keep = element("button", { type: "button", on: { click: back } }, "Keep");
    const go = element(
      "button",
      { type: "button", class: "danger", on: { click: () => this.#remove(item, document, back) } },
      "Remove",
    );
    const question = element("p", {}, `Remove “${title}” from the index?`);
    const asked = element(
      "div",
      { class: "confirm", role: "alertdialog", "aria-label": `Remove ${title}?` },
      question,
      element("p", { class: "buttons" }, keep, go),
    );
    asked.addEventListener("keydown", (event) => event.key === "Escape" && back(event));
    item.replaceChildren(asked);
    keep.focus();
  }

  async #remove(item, document, back) {
    for (const button of item.querySelectorAll("button")) button.disabled = true;
    try {
      await remove("v1/documents", { id: document.id });
      announce(`${document.title || document.id} removed.`);
      await this.refresh();
      this.changed();
      byId("documents-title").focus();
    } catch (error) {
      back();
      item.append(element("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  #paging(total, shown) {
    const button = (text, offset, possible) =>
      element("button", { type: "button", disabled: !possible, on: { click: () => this.#page(offset) } }, text);
    return element(
      "p",
      { class: "tools paging" },
      button("Previous", Math.max(0, this.offset - PAGE), this.offset > 0),
      element("span", {}, `${this.offset + 1} to ${this.offset + shown} of ${total.toLocaleString("en")}`),
      button("Next", this.offset + PAGE, this.offset + shown < total),
    );
  }

  /** Add files, one after another. */
  add(files) {
    for (const file of files) {
      const state = element("span", { class: "upload-state", role: "status" }, "waiting");
      const bar = element("progress", { max: "1", value: "0", "aria-label": `${file.name}: sent` });
      const line = element(
        "li",
        { "data-state": "waiting" },
        element("span", { class: "upload-name" }, file.name),
        state,
        bar,
      );
      this.uploads.prepend(line);
      this.waiting = this.waiting.then(() => this.#send(file, line, state, bar));
    }
  }

  async #send(file, line, state, bar) {
    try {
      const most = this.info?.max_body_bytes;
      if (most && file.size > most)
        throw new ServiceError(`It has ${size(file.size)}, and the service takes at most ${size(most)}.`);
      if (!file.size) throw new ServiceError("The file is empty.");
      state.textContent = "sending";
      const change = await upload("v1/documents", { filename: file.name }, file, (share) => {
        bar.value = share;
        state.textContent = share < 1 ? "sending" : "being read and indexed";
      });
      line.dataset.state = "done";
      state.textContent = [outcome(change), ...(change.warnings ?? [])].join(" ");
      await this.refresh();
      this.changed();
    } catch (error) {
      line.dataset.state = "failed";
      state.textContent = error.message;
    }
    bar.remove();
  }
}

function size(bytes) {
  return bytes < 1024 * 1024 ? `${Math.ceil(bytes / 1024)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

function outcome({ added, replaced, unchanged }) {
  const parts = [];
  if (added) parts.push(count(added, "document") + " added");
  if (replaced) parts.push(count(replaced, "document") + " replaced");
  if (unchanged) parts.push(count(unchanged, "document") + " unchanged");
  return parts.length ? `${parts.join(", ")}.` : "Nothing to index was found in it.";
}
