// The stages of a question as they arrive, each with the time that it took.

import { announce, count, duration, element, still } from "./elements.js";

export const ASK = ["seeds", "chains", "evidence", "answer"];
export const SEARCH = ["search"];

const NAMES = {
  seeds: "Seeds",
  chains: "Chains",
  evidence: "Evidence",
  answer: "Answer",
  search: "Search",
};

const DETAILS = {
  seeds: (found) => count(found.seeds.length, "passage"),
  chains: (found) => count(found.chains.length, "chain"),
  evidence: (found) => (found.context.length ? count(found.context.length, "piece") : "none found"),
  answer: (found) => `by ${found.method}`,
  search: (found) => `${count(found.chains.length, "chain")}, ${count(found.passages.length, "passage")}`,
};

const STATES = { waiting: "waiting", running: "running", done: "done", failed: "failed", cancelled: "cancelled" };

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

  /** Take what a stage found; return the seconds that it took. */
  arrive(name, found) {
    const seconds = (performance.now() - this.since) / 1000;
    this.show(name, found, seconds);
    announce(`${NAMES[name]}: ${DETAILS[name](found)}, ${duration(seconds)}.`);
    this.#run(this.names[this.names.indexOf(name) + 1]);
    return seconds;
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
