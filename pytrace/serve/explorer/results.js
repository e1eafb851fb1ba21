// What was found for one question: stages, answer, certificate, chains, evidence and passages, each put in when it arrives.

import { certificateSection, claimsSection, verdicts } from "./certificates.js";
import { arrowKeys, byId, count, duration, element, placeLine, spelled } from "./elements.js";
import { evidenceSection, notes } from "./evidence.js";
import { GraphView } from "./graph_view.js";
import { neighboursSection } from "./neighbours.js";
import { ASK, SEARCH, Stages } from "./stages.js";

const FIRST = 5; // passages that are listed at once

/** The sections of one result. `read(passage)` opens a passage where it stands; `again()` asks once more. */
export class ResultView {
  constructor(result, { read, again }) {
    this.result = result;
    this.read = read;
    this.again = again;
    this.stages = new Stages(result.kind === "search" ? SEARCH : ASK);
    this.slots = {};
    for (const name of ["problem", "answer", "chains", "evidence", "certificates", "passages"]) {
      this.slots[name] = element("div", { class: "slot", "data-slot": name });
    }
    byId("results").replaceChildren(
      element("h2", { class: "asked" }, result.request.question),
      this.stages.list,
      ...Object.values(this.slots),
    );
  }

  /** Show a stored result as it is. */
  showAll() {
    const { seeds, chains, evidence, answer, times } = this.result;
    const found = { seeds, chains, evidence, answer, search: chains };
    for (const stage of this.stages.names)
      if (times[stage] !== undefined) this.stages.show(stage, found[stage], times[stage]);
    for (const stage of ["seeds", "chains", "evidence", "answer"]) if (found[stage]) this.add(stage);
  }

  /** Put in what a stage has found. */
  add(stage) {
    if (stage === "seeds") this.#seeds();
    if (stage === "chains") this.#chains();
    if (stage === "evidence") this.#evidence();
    if (stage === "answer") this.#answer();
    if (stage !== "seeds" && this.graph) this.graph.show(this.result);
  }

  /** Say what went wrong; a busy service says when to try again. */
  problem(error) {
    const again = element("button", { type: "button", on: { click: this.again } }, "Try again");
    this.slots.problem.replaceChildren(
      element(
        "div",
        { class: "notice bad", role: "alert" },
        element("p", {}, error.status === 429 ? "The service is busy. " : "", error.message),
        error.requestId ? element("p", { class: "place" }, `Request ${error.requestId}`) : null,
        again,
      ),
    );
    if (error.retryAfter) countDown(again, error.retryAfter);
  }

  /** Say that the question was taken back; what had arrived stays. */
  cancelled() {
    const again = element("button", { type: "button", on: { click: this.again } }, "Ask again");
    this.slots.problem.replaceChildren(element("div", { class: "notice" }, element("p", {}, "Cancelled."), again));
  }

  #seeds() {
    const { seeds } = this.result;
    const passages = element(
      "section",
      { class: "card" },
      element("h2", {}, "Passages near the question"),
      element("p", { class: "lead" }, "Those that it finds by itself, while chains are looked for."),
      passageList(seeds.seeds, this.read),
    );
    this.slots.passages.replaceChildren(seeds.seeds.length ? passages : nothing());
  }

  #chains() {
    const { chains, seeds } = this.result;
    const list = element(
      "ol",
      { class: "chains" },
      chains.chains.map((chain, index) => this.#chain(chain, index)),
    );
    arrowKeys(list, "button.step");
    const section = element("section", { class: "card" }, element("h2", {}, "Chains"));
    if (seeds && seeds.read_as !== seeds.question)
      section.append(element("p", { class: "lead" }, `Read as: ${seeds.read_as}`));
    if (seeds) section.append(element("p", { class: "lead" }, hopsLine(seeds.hops)));
    if (chains.chains.length) {
      this.near = element("div", { class: "near" });
      section.append(this.#graph(), this.near, list);
    } else {
      section.append(element("p", { class: "empty" }, "No passages were found that answer together."));
    }
    this.slots.chains.replaceChildren(section);

    const best = element(
      "section",
      { class: "card" },
      element("h2", {}, "Passages found"),
      passageList(chains.passages, this.read),
    );
    this.slots.passages.replaceChildren(chains.passages.length ? best : nothing());
  }

  #graph() {
    const box = element("div", { class: "graph" });
    const caption = element("p", { class: "graph-caption" }, "Click a passage to read it in its document.");
    const legend = element(
      "p",
      { class: "legend" },
      ["passage", "evidence", "neighbour"].map((kind) => element("span", { class: `key-${kind}` }, kind)),
    );
    this.graph = new GraphView(box, caption, this.read);
    // The list of chains below says the same.
    return element("div", { class: "figure", "aria-hidden": "true" }, box, caption, legend);
  }

  #chain(chain, index) {
    const probability = chain.probability < 0.005 ? "below 0.01" : chain.probability.toFixed(2);
    return element(
      "li",
      {},
      element("h3", {}, `Chain ${index + 1} `, element("span", { class: "soft" }, `probability ${probability}`)),
      element(
        "ol",
        { class: "thread" },
        chain.steps.map((step) => this.#step(step, chain)),
      ),
    );
  }

  #step(step, chain) {
    let from = "found by the question";
    if (step.source > 0) {
      const name = spelled(step.name, [step.title, chain.steps[step.source - 1].sentence]);
      from = name ? `named “${name}” in step ${step.source}` : `from step ${step.source}`;
    }
    return element(
      "li",
      { "data-passage": step.id },
      element(
        "button",
        { type: "button", class: "step", on: { click: () => this.read(step) } },
        element(
          "span",
          { class: "row-title" },
          step.title || "Untitled",
          " ",
          element("span", { class: "soft" }, from),
        ),
        element("q", {}, step.sentence),
        placeLine(step.where),
      ),
      element(
        "button",
        {
          type: "button",
          class: "link",
          "aria-label": `Neighbours of ${step.title}`,
          on: { click: () => this.#neighbours(step) },
        },
        "Neighbours",
      ),
    );
  }

  #neighbours(step) {
    const close = () => {
      this.graph.setNeighbours(step.id, null);
      this.near.replaceChildren();
    };
    const found = (list) => this.graph.setNeighbours(step.id, list);
    this.near.replaceChildren(neighboursSection(step, { read: this.read, found, close }));
    this.near.querySelector("h3").focus();
  }

  #evidence() {
    this.slots.evidence.replaceChildren(evidenceSection(this.result, this.read));
  }

  #answer() {
    const { answer } = this.result;
    const seconds = Object.values(this.result.times).reduce((sum, time) => sum + time, 0);
    const facts = [
      answer.method,
      duration(seconds),
      answer.context_tokens ? count(answer.context_tokens, "token") + " of evidence" : "",
      answer.probability == null ? "" : `right with probability ${answer.probability.toFixed(2)}`,
    ];
    this.slots.answer.replaceChildren(
      element(
        "section",
        { class: "answer", "aria-label": "Answer" },
        element("p", { class: "answer-text" }, answer.answer || "The evidence gave no answer."),
        places(answer.places ?? [], this.read),
        element("p", { class: "place" }, facts.filter(Boolean).join(" · ")),
        verdicts(answer.certificates, answer.claims ?? []),
        notes(answer.notes),
        costs(answer),
      ),
    );
    // Answers of a history may be from before there were claims.
    const claims = answer.claims?.length ? [claimsSection(answer.claims)] : [];
    this.slots.certificates.replaceChildren(...answer.certificates.map(certificateSection), ...claims);
  }
}

function countDown(button, seconds) {
  button.disabled = true;
  const tick = () => {
    button.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
    button.disabled = seconds > 0;
    if (seconds > 0 && button.isConnected) setTimeout(tick, 1000);
    seconds -= 1;
  };
  setTimeout(tick, 0);
}

function hopsLine(hops) {
  const likely = Math.round(hops * 100);
  if (likely >= 50) return `The question seems to take two passages (${likely} % likely).`;
  return `The question seems to take one passage (${100 - likely} % likely).`;
}

function nothing() {
  return element(
    "p",
    { class: "empty" },
    "Nothing was found. Try other words, or fewer conditions under “More options”.",
  );
}

function passageList(passages, read) {
  const list = element("ol", { class: "rows" });
  const put = (some) => {
    for (const passage of some) {
      list.append(
        element(
          "li",
          {},
          element(
            "button",
            { type: "button", class: "row", on: { click: () => read(passage) } },
            element(
              "span",
              { class: "row-title" },
              passage.title || "Untitled",
              " ",
              element("span", { class: "soft" }, passage.score.toFixed(3)),
            ),
            element("span", { class: "excerpt" }, passage.text),
            placeLine(passage.where),
          ),
        ),
      );
    }
  };
  arrowKeys(list, "button.row");
  put(passages.slice(0, FIRST));
  if (passages.length <= FIRST) return list;
  const more = element("button", { type: "button", class: "link" }, `Show all ${passages.length}`);
  more.addEventListener("click", () => {
    put(passages.slice(FIRST));
    list.children[FIRST].querySelector("button").focus();
    more.remove();
  });
  return [list, more];
}

/** Return the sentences that an answer was taken out of, with its words marked, as a list; nothing if it was not. */
function places(found, read) {
  if (!found.length) return null;
  const rows = found.map((one) => {
    const words = [
      element("span", { class: "row-title" }, one.title),
      element("q", {}, one.before, element("mark", { class: "here" }, one.words), one.behind),
      placeLine(one.where),
    ];
    return element("li", {}, element("button", { type: "button", class: "step", on: { click: () => read(one) } }, words));
  });
  const list = element("ul", { class: "rows" }, rows);
  arrowKeys(list, "button.step");
  return list;
}

function costs(answer) {
  const names = [...new Set([...Object.keys(answer.seconds), ...Object.keys(answer.usage)])];
  if (!names.length) return null;
  const head = ["Stage", "Time", "Calls", "Tokens read", "Tokens written"];
  const rows = names.map((name) => {
    const usage = answer.usage[name];
    const time = answer.seconds[name] ?? usage?.seconds;
    const cells = [
      time === undefined ? "" : duration(time),
      usage?.calls,
      usage?.prompt_tokens,
      usage?.generated_tokens,
    ];
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      cells.map((cell) => element("td", {}, typeof cell === "number" ? cell.toLocaleString("en") : (cell ?? ""))),
    );
  });
  return element(
    "details",
    {},
    element("summary", {}, "What it cost"),
    element(
      "div",
      { class: "scroll" },
      element(
        "table",
        {},
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            head.map((text) => element("th", { scope: "col" }, text)),
          ),
        ),
        element("tbody", {}, rows),
      ),
    ),
  );
}
