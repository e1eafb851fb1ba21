"use strict";
// A question opened: each method's answer, and for those that are looked at their evidence.
const drillDown = (() => {
  const { ICONS, count, drawing, fact, fixed, icon, legendEntry, longText, make, section, triple, whole } = page;
  const { percent, rankClass } = chainDrawing;

  const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)}%`);
  const verdict = (score) => (score === null ? ["none", ICONS.dash, "not asked"] : score[0] === null ? ["bad", ICONS.no, "failed"] : score[1] === null ? ["none", ICONS.dash, "no gold answer"] : score[1] ? ["good", ICONS.yes, "right"] : ["bad", ICONS.no, "wrong"]);
  function mark(score, words) {
    const [colour, path, name] = verdict(score);
    return make("span", { class: `mark ${colour}` }, icon(path, words ? null : name), words ? name : null);
  }
  const table = (name, attributes, heads, rows) => make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": name },
    make("table", attributes, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, rows)));
  const number = (rank) => make("span", { class: `rank ${rankClass(rank)}` }, String(rank + 1));

  function body(row, data, methods, detail) {
    const facts = make("dl", { class: "facts" },
      fact("Gold answer", make("strong", {}, row.answers.join(" · ") || "none known")),
      detail.gold.length ? fact("Supported by", detail.gold.map((title, place) => [place ? " · " : "", make("bdi", { class: "gold-text" }, title)])) : null,
      row.kind ? fact("Kind", row.kind) : null,
      detail.done ? detail.done.map((words, place) => fact(place ? "" : "Done to it", words)) : null,
      fact("Identifier", row.id));
    const panels = make("div", { class: "panels" });
    const shown = new Map();
    const rows = methods.map((method, place) => {
      const score = row.scores[place];
      const own = detail.methods[place];
      const button = make("button", { type: "button", class: "toggle", "aria-expanded": "false", disabled: own ? null : "" }, make("span", { class: "place" }, String(place + 1)), make("bdi", {}, method));
      const toggle = (open) => {
        button.setAttribute("aria-expanded", String(open));
        if (open && !shown.has(place)) shown.set(place, panel(method, place, score, own, detail));
        if (!open) shown.delete(place);
        panels.replaceChildren(...[...shown.keys()].sort((one, other) => one - other).map((key) => shown.get(key)));
      };
      button.addEventListener("click", () => toggle(button.getAttribute("aria-expanded") !== "true"));
      const stages = (own && own.stages) || [];
      const cells = own
        ? [
          make("td", { class: "words", dir: "auto" }, score[0] === null ? make("span", { class: "label" }, own.error) : score[0] || make("span", { class: "label" }, "(empty)")),
          make("td", {}, mark(score)),
          make("td", {}, fixed(score[2])),
          make("td", {}, share(own.support[0])),
          make("td", {}, share(own.support[1])),
          make("td", {}, own.error ? "–" : whole(own.contextTokens || 0)),
          make("td", {}, own.error ? "–" : stages.reduce((sum, stage) => sum + stage[1], 0).toFixed(2)),
        ]
        : [make("td", { class: "words label", colspan: 7 }, "not asked yet")];
      return [make("tr", {}, make("th", { scope: "row" }, button), cells), toggle];
    });
    const heads = ["Method", "Answer", "EM", "F1", "Support P", "Support R", "Context", "Seconds"].map((name, place) => make("th", { scope: "col", class: place === 1 ? "words" : null }, name));
    const answers = table("Answers", { class: "answers" }, heads, rows.map(([element]) => element));
    for (const place of new Set([data.a, data.b])) if (detail.methods[place]) rows[place][1](true);
    return make("div", { class: "body" }, facts, section("Answers: choose a method to see or to hide what it did", answers), panels);
  }

  function panel(method, place, score, own, detail) {
    const parts = [];
    const title = (reference) => (typeof reference === "number" ? detail.documents[reference][0] : reference);
    const isGold = (reference) => (typeof reference === "number" ? Boolean(detail.documents[reference][2]) : detail.gold.includes(reference));
    parts.push(make("header", {}, make("h4", { class: "method" }, make("span", { class: "place" }, String(place + 1)), make("bdi", {}, method)), mark(score, true)));
    if (own.error) return make("article", { class: "panel" }, parts, make("p", { dir: "auto" }, own.error));
    parts.push(...longText("p", { class: "text answer" }, score[0] || "(empty)", 0));
    if (own.quote) parts.push(quote(own.quote));
    if (own.certainty) parts.push(make("p", { class: "label" }, `Confidence: ${own.certainty} (${share(own.confidence || 0)})`));
    for (const note of own.notes || []) parts.push(make("p", { class: "note", dir: "auto" }, note));
    if (own.chains) parts.push(section("Chains", ...chains(own, detail, isGold, title)));
    if (own.features) parts.push(section("Which snippet holds what", coverage(own, detail, title)));
    if (own.queries) parts.push(section("Asked of the knowledge base", make("ol", { class: "queries" }, own.queries.map(query))));
    if (own.triples) parts.push(section("Triples written from the question", make("ul", { class: "lines" }, own.triples.map((parts_) => make("li", {}, triple(parts_))))));
    if (own.rationale) parts.push(section("Thoughts", make("ol", { class: "lines" }, own.rationale.map((words) => make("li", { dir: "auto" }, words)))));
    parts.push(section(`What the reader saw${own.contextTokens ? `: ${count(own.contextTokens, "token")}` : ""}`, context(own, title)));
    if (detail.documents.length) parts.push(section("Documents", ...documents(own, detail)));
    parts.push(section("Cost", cost(own)));
    return make("article", { class: "panel", "aria-label": method }, parts);
  }

  function quote([title, before, words, after]) {
    return make("p", { class: "quote", dir: "auto" }, make("bdi", { class: "title" }, title), ": ", make("q", {}, before, make("mark", { class: "r0" }, words), after));
  }

  const worth = (chain) => (chain[2] === null ? "to the answer" : percent(chain[2]));

  function chains(own, detail, isGold, title) {
    const picture = chainDrawing.draw(own.units, own.chains, isGold, title);
    const gold = own.units.some((unit) => isGold(unit[3]));
    const triples = own.units.some((unit) => unit[1]);
    const told = own.chains.map(([units], rank) => `chain ${rank + 1}: ${units.map((unit) => own.units[unit].slice(0, 3).filter(Boolean).join(" ")).join("; ")}`).join(". ");
    return [
      drawing("Drawing of the chains", picture, `Chains, ${told}`),
      make("ul", { class: "legend" },
        own.chains.slice(0, 6).map((chain, rank) => make("li", {}, number(rank), ` ${worth(chain)}`)),
        gold ? triples ? legendEntry("", "of a document that supports the answer", "band") : make("li", {}, make("i", { class: "gold-box" }), "of a document that supports the answer") : null),
      make("ol", { class: "chains" }, own.chains.map((chain, rank) => {
        const [units, chances, score, ended] = chain;
        return make("li", {},
          make("p", { class: "chain-head" }, number(rank), make("strong", {}, ` ${worth(chain)}`), score === null ? null : make("span", { class: "label" }, ended ? " ended by the selector" : " maximum length")),
          make("ol", { class: "steps" }, units.map((unit, step) => make("li", {}, score === null ? null : make("span", { class: "chance" }, percent(chances[step])), stepWords(own.units[unit], detail, isGold, title)))));
      })),
    ];
  }

  function stepWords([head, relation, tail, document, sentence], detail, isGold, title) {
    const known = typeof document === "number" ? detail.documents[document] : null;
    const said = known && sentence >= 0 ? known[1][sentence] : "";
    const place = [make("bdi", { class: isGold(document) ? "gold-text" : null }, title(document)), sentence >= 0 ? `, sentence ${sentence + 1}` : ""];
    if (!relation) return make("div", {}, make("p", { dir: "auto" }, tail), document === "" ? null : make("p", { class: "label" }, place));
    return make("div", {}, make("p", {}, triple([head, relation, tail])), document === "" ? null : make("p", { class: "label" }, place, said ? [": ", make("q", { dir: "auto" }, said)] : null));
  }

  function coverage(own, detail, title) {
    const held = own.pool.map((snippet, place) => ({ snippet, place, any: own.features.some((one) => one[3].includes(place) || one[4].includes(place)) }));
    const columns = held.filter((one) => one.any).length ? held.filter((one) => one.any || one.place < 6) : held.slice(0, 6);
    const name = ([document, sentence]) => `${title(document)}${sentence >= 0 ? `, sentence ${sentence + 1}` : ""}`;
    const cell = (one, place) => {
      const value = one[2][place];
      const state = one[4].includes(place) ? "chosen" : one[3].includes(place) ? "covered" : "open";
      const words = { chosen: "holds it, chosen", covered: "holds it", open: "does not hold it" }[state];
      return make("td", { class: `cover ${state}`, title: words }, value === null || value === undefined ? "–" : value.toFixed(2), make("span", { class: "told" }, `, ${words}`));
    };
    const left = own.pool.length - columns.length;
    const heads = [make("th", { scope: "col" }, "Feature"), columns.map((one) => make("th", { scope: "col" }, make("span", { class: "place" }, String(one.place + 1)), make("bdi", {}, name(one.snippet))))];
    const rows = own.features.map((one) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, one[1], make("small", {}, one[3].length ? one[0] : `${one[0]}, held by nobody`)), columns.map((column) => cell(one, column.place))));
    return make("div", {}, table("Coverage", { class: "coverage" }, heads, rows),
      make("p", { class: "label" }, `Probability that a snippet holds the feature; filled: chosen for the reader, framed: holds it too.${left ? ` ${count(left, "snippet")} that hold nothing are left out.` : ""}`));
  }

  function query(one) {
    const line = (name, words) => (words ? fact(name, words) : null);
    return make("li", {}, make("p", { dir: "auto" }, make("strong", {}, make("bdi", {}, one.question)), make("span", { class: "label" }, one.place < 0 ? " the question itself" : ` thought ${one.place + 1}`)),
      make("dl", { class: "facts" },
        one.refused.map(([written, reason]) => line("Refused", `${written || "(nothing)"}: ${reason}`)),
        line("Written", one.written),
        one.links.map(([mention, key, score]) => line("Linked", `${mention} to ${key} (${fixed(score)})`)),
        line("Run", one.run ? make("code", {}, one.run) : ""),
        line("On", one.store),
        line("Outcome", `${one.outcome}${one.values.length ? `: ${one.values.join(", ")}` : ""}${one.moreValues ? ` and ${whole(one.moreValues)} more` : ""}${one.reason ? ` (${one.reason})` : ""}`),
        one.facts.map((words) => line("Fact", words))));
  }

  function context(own, title) {
    const entries = own.context || [];
    if (!entries.length) return make("p", { class: "label" }, "Nothing but the question.");
    return make("ol", { class: "lines context" },
      entries.map((entry) => make("li", { dir: "auto" }, typeof entry === "number" ? ["the document ", make("bdi", { class: "title" }, title(entry))] : longText("div", {}, entry, 0))),
      own.moreContext ? make("li", { class: "label" }, `and ${whole(own.moreContext)} more, left out of this page`) : null);
  }

  // Which sentences a method's chains, or the snippets that it chose, rest on: document to sentence (-1: all) to chains by rank.
  function rests(own) {
    const found = new Map();
    const add = (document, sentence, rank) => {
      if (!found.has(document)) found.set(document, new Map());
      const own_ = found.get(document);
      if (!own_.has(sentence)) own_.set(sentence, new Set());
      if (rank !== null) own_.get(sentence).add(rank);
    };
    (own.chains || []).forEach(([units], rank) => units.forEach((unit) => add(own.units[unit][3], own.units[unit][4], rank)));
    for (const feature of own.features || []) for (const place of feature[4]) if (own.pool[place]) add(...own.pool[place], null);
    return found;
  }

  function documents(own, detail) {
    const found = rests(own);
    const votes = new Map(own.votes || []);
    const chosen = new Set(own.chosen || []);
    const text = ([, sentences, , gold], place) => {
      const marked = found.get(place) || new Map();
      return make("p", { class: "sentences", dir: "auto" }, sentences.map((words, at) => {
        const ranks = marked.get(at) || marked.get(-1);
        const inner = ranks
          ? make("mark", { class: ranks.size ? rankClass(Math.min(...ranks)) : "r0" }, words, [...ranks].slice(0, 6).map((rank) => number(rank)))
          : words;
        return [gold.includes(at) ? make("span", { class: "gold-sentence", title: "gold supporting sentence" }, inner) : inner, " "];
      }));
    };
    const one = (place) => {
      const [title, , gold] = detail.documents[place];
      const tags = [gold ? make("span", { class: "tag gold" }, "gold") : null, chosen.has(place) ? make("span", { class: "tag" }, "chosen") : null, votes.has(place) ? make("span", { class: "tag" }, count(votes.get(place), "vote")) : null];
      return make("details", { class: "document", open: found.has(place) || (gold && chosen.has(place)) ? "" : null }, make("summary", {}, make("bdi", { class: "title" }, title), tags), text(detail.documents[place], place));
    };
    const places = detail.documents.map((_, place) => place);
    const seen = (place) => found.has(place) || chosen.has(place) || detail.documents[place][2];
    const others = places.filter((place) => !seen(place));
    return [
      ...places.filter(seen).sort((first, second) => (votes.get(second) || 0) - (votes.get(first) || 0)).map(one),
      others.length ? make("details", { class: "others" }, make("summary", {}, `${count(others.length, "other document")}`), others.map(one)) : null,
      detail.leftOut ? make("p", { class: "label" }, `${count(detail.leftOut, "document")} that nobody chose ${detail.leftOut === 1 ? "is" : "are"} left out of this page.`) : null,
    ].filter(Boolean);
  }

  function cost(own) {
    const rows = (own.stages || []).map(([stage, seconds, ...counts]) => make("tr", {}, make("th", { scope: "row" }, stage), make("td", {}, seconds.toFixed(2)),
      [0, 1, 2, 3].map((place) => make("td", {}, counts.length ? whole(counts[place]) : "–"))));
    const heads = ["Stage", "Seconds", "Prompts", "Asked", "Evaluated", "Written"].map((name) => make("th", { scope: "col" }, name));
    return table("Cost", {}, heads, rows);
  }

  return { body, mark };
})();
