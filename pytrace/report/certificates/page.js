"use strict";
(() => {
  const { ICONS, byId, count, drawing: drawn, fact, fixed, holds, icon: symbol, legendEntry, listing, longText, make, section, shape, triple } = page;
  const data = JSON.parse(byId("data").textContent);
  const MARKS = {
    faithful: ["Faithful", "good", ICONS.yes],
    unfaithful: ["Unfaithful", "bad", ICONS.no],
    factual: ["Factual error", "bad", ICONS.no],
    incoherent: ["Incoherence", "bad", "M1.5 8 H5.5 M10.5 8 H14.5 M9.5 3.5 6.5 12.5"],
    answer: ["Answer error", "bad", "M8 2.5 A5.5 5.5 0 1 0 8 13.5 A5.5 5.5 0 1 0 8 2.5 M4.2 4.2 11.8 11.8"],
    abstained: ["Abstained", "none", ICONS.dash],
    unstructured: ["Unstructured", "none", "M2 5 Q5 2 8 5 T14 5 M2 11 Q5 8 8 11 T14 11"],
    supported: ["supported", "good", ICONS.yes],
    unsupported: ["not supported", "bad", ICONS.no],
    undecided: ["undecided", "doubt", "M5 5.5 Q5 2.5 8 2.5 T11 5.5 Q11 7 8 8.5 V10 M8 13.4 V13.5"],
    right: ["answer right", "good", ICONS.yes],
    wrong: ["answer wrong", "bad", ICONS.no],
    unknown: ["no gold answer", "none", ICONS.dash],
  };

  const icon = (name, label) => symbol(MARKS[name][2], label);
  const mark = (name) => make("span", { class: `mark ${MARKS[name][1]}` }, icon(name), MARKS[name][0]);
  const answerOf = (row) => (row.right === null ? "unknown" : row.right ? "right" : "wrong");

  function bar(name, value, limit) {
    const width = 100 * Math.min(Math.max(value === null ? 0 : value, 0), 1);
    const colour = limit === null || value === null ? "" : value >= limit ? " over" : " under";
    const told = limit === null ? "" : `, threshold ${fixed(limit)}`;
    const drawing = shape("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", role: "img", "aria-label": `${name} ${fixed(value)}${told}` },
      shape("rect", { class: "track", x: 0, y: 4, width: 100, height: 6 }),
      shape("rect", { class: `fill${colour}`, x: 0, y: 4, width, height: 6 }),
      limit === null ? null : shape("rect", { class: "limit", x: 100 * limit - 0.5, y: 0, width: 1, height: 14 }));
    return make("div", {}, make("dt", {}, name), make("dd", {}, drawing, make("span", { class: "number" }, fixed(value))));
  }

  function step(one, place) {
    const match = one.match;
    const words = make("div", { class: "words" },
      make("div", {}, mark(one.status), one.follows ? null : make("span", { class: "label" }, " · does not follow from the step before")),
      longText("p", {}, `${place + 1}. ${one.text}`, 0),
      one.match ? make("div", {}, make("div", { class: "label" }, one.status === "supported" ? "Triple of the graph" : "Nearest triple of the graph"), triple(one.match.triple)) : null,
      one.why ? make("p", { class: "why", dir: "auto" }, one.why) : null,
      match && match.otherRelation ? make("p", { class: "why" }, "It sounds more like the relation ", make("bdi", {}, match.otherRelation), ` (${fixed(match.otherCosine)}).`) : null,
      one.runnerUp ? make("p", { class: "why" }, `Next best (${fixed(one.runnerUp.score)}): `, triple(one.runnerUp.triple)) : null,
      one.entities.length ? make("p", { class: "why" }, "Names found: ", one.entities.map((name, i) => [i ? ", " : "", make("bdi", {}, name)])) : null);
    return make("li", { class: "step" }, words, match ? make("dl", { class: "bars" },
      bar("Score", match.score, data.threshold),
      bar("Cosine", match.cosine, null),
      bar("Head", match.head, data.entityThreshold),
      bar("Tail", match.tail, data.entityThreshold),
      match.relation === null ? null : bar("Relation", match.relation, null),
      match.headFound && match.tailFound ? null : make("p", { class: "label" }, `The step does not name ${match.headFound ? "the tail" : match.tailFound ? "the head" : "head and tail"}.`)) : null);
  }

  function styled(picture) {
    const edges = picture.edges.map((edge) => ({ ...edge, kind: edge.status || (edge.gold ? "only-gold" : "fact"), band: edge.gold ? "band" : "" }));
    return { ...picture, edges };
  }

  function legend(picture) {
    const used = (kind) => picture.edges.some((edge) => edge.status === kind);
    return make("ul", { class: "legend" },
      used("supported") ? legendEntry("supported", "a step that the graph supports") : null,
      used("unsupported") ? legendEntry("unsupported", "nearest triple of a step that it does not") : null,
      used("undecided") ? legendEntry("undecided", "nearest triple of an undecided step") : null,
      picture.edges.some((edge) => edge.gold) ? legendEntry("", "gold path", "band") : null,
      picture.edges.some((edge) => !edge.status && !edge.gold) ? legendEntry("fact", "other facts of the graph") : null);
  }

  function body(row) {
    const kind = row.error || row.kind;
    const gold = row.gold.join(", ") + (row.moreGold ? ` and ${row.moreGold.toLocaleString("en")} more` : "");
    const facts = make("dl", { class: "facts" },
      fact("Gold answer", gold || "not known"),
      fact("Stated answer", row.answer || "none", mark(answerOf(row))),
      row.reached ? fact("Steps end at", row.reached) : null,
      row.distance === null ? null : fact("Edit distance", `${row.distance}${row.rate === null ? "" : ` (rate ${fixed(row.rate)})`} to the nearest gold path`),
      row.path.length ? fact("Gold path", make("ol", { class: "path" }, row.path.map((parts) => make("li", {}, triple(parts))))) : null,
      row.id ? fact("Identifier", row.id) : null);
    const steps = row.steps.length
      ? [make("ol", { class: "step-list" }, row.steps.map(step)), row.moreSteps ? make("p", { class: "label" }, `${count(row.moreSteps, "more step")} left out of this page.`) : null]
      : [make("p", { class: "label" }, "No steps could be made out.")];
    const drawing = row.picture
      ? [drawn("Drawing of the graph", styled(row.picture), `Graph around the response: ${row.picture.edges.map((edge) => edge.name).join("; ")}`), legend(row.picture)]
      : [make("p", { class: "label" }, row.number > data.pictures ? `The graph is drawn for the first ${data.pictures.toLocaleString("en")} responses of a page only.` : "There is no triple to draw.")];
    return make("div", { class: "body" },
      make("div", { class: "verdict" }, make("div", {}, mark(kind), row.error ? make("span", { class: "label" }, " · unfaithful") : null), make("p", { dir: "auto" }, row.why)),
      make("div", { class: "two" }, section("Response", ...longText("p", { class: "text" }, row.text || "(empty)", row.left)), section("Answer", facts)),
      section("Steps", ...steps),
      section("In the graph", ...drawing));
  }

  function fill(details, row) {
    details.append(body(row));
    const view = details.querySelector(".scroll");
    if (view) view.scrollLeft = row.picture.nodes[0].x - view.clientWidth / 2; // on a small screen, begin at the path
  }

  function item(row) {
    const answer = answerOf(row);
    const trail = make("span", { class: "trail" },
      row.steps.length ? make("span", { class: "steps" }, row.steps.slice(0, 8).map((one, place) => make("span", { class: `mark ${MARKS[one.status][1]}` }, icon(one.status, `step ${place + 1} ${MARKS[one.status][0]}`)))) : null,
      make("span", { class: `mark ${MARKS[answer][1]}` }, icon(answer), make("span", { class: "answer-word" }, MARKS[answer][0])));
    return make("details", { class: "response", "data-kind": row.kind, "data-error": row.error },
      make("summary", {}, mark(row.error || row.kind), make("span", { class: "question", dir: "auto" }, row.question || "(no question)"), trail));
  }

  function matches(row, state) {
    if (state.kind && row.kind !== state.kind) return false;
    if (state.error && row.error !== state.error) return false;
    if (state.answer && answerOf(row) !== state.answer) return false;
    return holds(row, state.q, () => [row.id, row.question, row.text, row.answer, ...row.gold].join("\n"));
  }

  listing({ rows: data.rows, noun: "response", matches, item, fill });
})();
