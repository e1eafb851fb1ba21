// One question and what is known of its result: stages, answer, chains, checks and passages, each shown when it arrives.

import { certificateSection, claimsSection, verdicts } from "./certificates.js";
import { placeOf, stepList } from "./chains.js";
import { details, notes } from "./details.js";
import { byId, confidenceWords, duration, element } from "./elements.js";
import { GraphView } from "./graph_view.js";
import { neighboursSection } from "./neighbours.js";
import { passageList } from "./passages.js";
import { ASK, SEARCH, Stages } from "./stages.js";

/** Return the result whose chains are shown: the answer, or before it that of the latest stage which has any. */
function shownChains({ search, evidence, answer }) {
  if (answer?.abstained) return answer;
  return [answer, evidence, search].find((result) => result?.evidence.chains?.length);
}

/**
 * The sections of a question that was asked, which has the `request` and the results by stage (`search`, `evidence`, `answer`).
 * `read(place)` opens a passage in its document; `again()` asks once more.
 */
export class ResultView {
  constructor(asked, { read, again }) {
    this.asked = asked;
    this.read = read;
    this.again = again;
    this.stages = new Stages(asked.kind === "search" ? SEARCH : ASK);
    this.slots = {};
    for (const name of ["problem", "answer", "chains", "check", "passages", "details"]) {
      this.slots[name] = element("div", { class: "slot", "data-slot": name });
    }
    byId("results").replaceChildren(
      element("h2", { class: "asked" }, asked.request.question),
      this.stages.list,
      ...Object.values(this.slots),
    );
  }

  /** Show a stored question as it is. */
  showAll() {
    for (const stage of this.stages.names) {
      if (this.asked.times[stage] === undefined) continue;
      if (this.asked[stage]) this.stages.show(stage, this.asked[stage], this.asked.times[stage]);
      else this.stages.skip(stage);
    }
    for (const stage of this.stages.names) if (this.asked[stage]) this.add(stage);
  }

  /** Show what a stage has found. */
  add(stage) {
    if (stage === "search") this.#passages();
    if (stage === "answer") this.#answer();
    this.#chains();
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

  #passages() {
    const { sources = [] } = this.asked.search.evidence;
    const { read_as: readAs, question } = this.asked.search;
    const section = element(
      "section",
      { class: "card" },
      element("h2", {}, "Passages found"),
      readAs && readAs !== question ? element("p", { class: "lead" }, `Searched for: ${readAs}`) : null,
      passageList(sources, readAs || question, this.read),
    );
    this.slots.passages.replaceChildren(sources.length ? section : nothing());
  }

  #answer() {
    const { answer } = this.asked;
    const seconds = Object.values(this.asked.times).reduce((sum, time) => sum + time, 0);
    const facts = [answer.method, duration(seconds)].filter(Boolean).join(" · ");
    this.slots.answer.replaceChildren(
      element(
        "section",
        { class: `answer ${answer.answer ? answer.certainty : "none"}`, "aria-label": "Answer" },
        ...(answer.answer ? this.#given(answer) : this.#abstained(answer)),
        verdicts(answer.check?.certificates ?? [], answer.check?.claims ?? []),
        notes(answer.notes),
        element("p", { class: "place" }, facts),
      ),
    );
    const { certificates = [], claims = [] } = answer.check ?? {};
    this.slots.check.replaceChildren(
      ...certificates.map(certificateSection),
      ...(claims.length ? [claimsSection(claims)] : []),
    );
    this.slots.details.replaceChildren(...(answer.method ? [details(answer)] : []));
  }

  #given(answer) {
    const { chains = [], sources = [] } = answer.evidence;
    const read = sources.filter((source) => source.read).map(({ title }) => title);
    return [
      element("p", { class: "answer-text" }, answer.answer),
      element("p", { class: "confidence" }, `Confidence: ${confidenceWords(answer)}`),
      chains.length
        ? stepList(chains[0], sources, this.#ways())
        : element("p", { class: "soft" }, read.length ? `Read: ${[...new Set(read)].join(", ")}` : ""),
    ];
  }

  #abstained({ reason, evidence, read_as: readAs, question }) {
    const closest = evidence.sources ?? [];
    return [
      element("p", { class: "answer-text" }, reason || "The method gave no answer."),
      closest.length ? element("p", { class: "soft" }, "Closest passages:") : null,
      closest.length ? passageList(closest, readAs || question, this.read) : null,
    ];
  }

  #chains() {
    const shown = shownChains(this.asked);
    const { chains = [], sources = [] } = shown?.evidence ?? {}; // none after an abstention: they lead to nothing
    if (!chains.length) {
      this.slots.chains.replaceChildren();
      this.graph = null;
      return;
    }
    if (!this.graph) this.#figure();
    // The first chain of an answer is shown with the answer.
    const first = shown === this.asked.answer && shown.answer ? 1 : 0;
    const items = chains
      .slice(first)
      .map((chain, index) =>
        element("li", {}, element("h3", {}, `Chain ${first + index + 1}`), stepList(chain, sources, this.#ways())),
      );
    this.list.replaceChildren(...items);
    this.graph.show(this.asked, shown);
  }

  #figure() {
    const box = element("div", { class: "graph" });
    const caption = element("p", { class: "graph-caption" }, "Click a passage to read it in its document.");
    const kinds = this.asked.kind === "search" ? ["passage", "neighbour"] : ["passage", "read", "neighbour"];
    const legend = element(
      "p",
      { class: "legend" },
      kinds.map((kind) => element("span", { class: `key-${kind}` }, kind)),
    );
    this.graph = new GraphView(box, caption, this.read);
    this.near = element("div", { class: "near" });
    this.list = element("ol", { class: "chains" });
    this.slots.chains.replaceChildren(
      element(
        "section",
        { class: "card" },
        element("h2", {}, "Chains"),
        // The lists of steps say the same as the picture.
        element("div", { class: "figure", "aria-hidden": "true" }, box, caption, legend),
        this.near,
        this.list,
      ),
    );
  }

  #ways() {
    return { read: this.read, near: (place) => this.#neighbours(place) };
  }

  #neighbours(place) {
    const close = () => {
      this.graph.setNeighbours(place.id, null);
      this.near.replaceChildren();
    };
    const found = (list) => this.graph.setNeighbours(place.id, list);
    this.near.replaceChildren(neighboursSection(place, { read: this.read, found, close }));
    this.near.querySelector("h3").focus();
  }
}

/** Return the sentences that the chains of a question's results have, by passage. */
export function foundSentences({ search, answer }) {
  const found = new Map();
  for (const { evidence } of [search, answer].filter(Boolean)) {
    const { chains = [], sources = [] } = evidence;
    for (const { id } of sources) found.set(id, found.get(id) ?? []);
    for (const place of chains.flatMap(({ steps }) => steps.map((step) => placeOf(step, sources)))) {
      if (place?.sentence_index >= 0) found.get(place.id).push(place.sentence_index);
    }
  }
  return found;
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

function nothing() {
  return element(
    "p",
    { class: "empty" },
    "Nothing was found. Try other words, or fewer conditions under “More options”.",
  );
}
