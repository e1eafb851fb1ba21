// The stages of a question as they arrive, each with the time that it took.

import { announce, confidenceWords, count, duration, element, still } from "./elements.js";

export const ASK = ["search", "evidence", "answer"];
export const SEARCH = ["search"];

const NAMES = { search: "Search", evidence: "Evidence", answer: "Answer" };

const DETAILS = {
  search: ({ evidence }) => (evidence.sources?.length ? count(evidence.sources.length, "passage") : "none found"),
  evidence: ({ evidence }) => {
    const read = (evidence.sources ?? []).filter((source) => source.read).length || (evidence.context?.length ?? 0);
    return read ? `${read} to read` : "none found";
  },
  answer: (result) => (result.answer ? confidenceWords(result) : "none"),
};

const STATES = { waiting: "waiting", running: "running", done: "done", failed: "failed", cancelled: "cancelled", skipped: "not needed" };

/** A row of stages. `times` has the seconds of each that has arrived; what is still to come is counted while it runs. */
export class Stages {
  constructor(names) {
    this.names = names;
    this.list = element("ol", { class: "stages", "aria-label": "Stages" });
    this.items = new Map();
    for (const name of names) {
      const time = element("span", { class: "time" });
      const detail = element("span", { class: "detail" });
      const spoken = element("span", { class: "hidden" });
      const item = element(
        "li",
        { "data-stage": name },
        element("span", { class: "name" }, NAMES[name]),
        time,
        detail,
        spoken,
      );
      this.items.set(name, { item, time, detail, spoken });
      this.list.append(item);
      this.#set(name, "waiting");
    }
  }

  #set(name, state) {
    const { item, spoken } = this.items.get(name);
    item.dataset.state = state;
    spoken.textContent = STATES[state];
  }

  /** Count the time of the first stage. */
  start() {
    this.began = performance.now();
    this.#run(this.names[0]);
  }

  #run(name) {
    clearInterval(this.clock);
    this.running = name;
    if (!name) return;
    this.since = performance.now();
    this.#set(name, "running");
    const tick = () => {
      this.items.get(name).time.textContent = duration((performance.now() - this.since) / 1000);
    };
    this.clock = setInterval(tick, still() ? 1000 : 100);
  }

  /** Show what a stage found, and return the seconds that it took; stages before it that were left out are passed over. */
  arrive(name, found) {
    const seconds = (performance.now() - this.since) / 1000;
    for (const before of this.names.slice(this.names.indexOf(this.running), this.names.indexOf(name))) this.skip(before);
    this.show(name, found, seconds);
    announce(`${NAMES[name]}: ${DETAILS[name](found)}, ${duration(seconds)}.`);
    this.#run(this.names[this.names.indexOf(name) + 1]);
    return seconds;
  }

  /** Show that a question did not need a stage. */
  skip(name) {
    this.#set(name, "skipped");
    this.items.get(name).time.textContent = "";
  }

  /** Show a stage that has arrived. */
  show(name, found, seconds) {
    const { time, detail } = this.items.get(name);
    this.#set(name, "done");
    time.textContent = duration(seconds);
    detail.textContent = DETAILS[name](found);
  }

  /** Stop counting: `state` is "failed" or "cancelled". */
  stop(state) {
    clearInterval(this.clock);
    if (this.running) this.#set(this.running, state);
    this.running = undefined;
  }
}
