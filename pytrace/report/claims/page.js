"use strict";
(() => {
  const { ICONS, byId, count, fixed, holds, icon, listing, make, section } = page;
  const rows = JSON.parse(byId("data").textContent);
  const MARKS = {
    supported: ["supported", "good", ICONS.yes],
    contradicted: ["contradicted", "bad", ICONS.no],
    "not there": ["not there", "doubt", ICONS.dash],
  };
  const mark = (label) => make("span", { class: `mark ${MARKS[label][1]}` }, icon(MARKS[label][2]), MARKS[label][0]);
  const textOf = (row) => row.parts.map(([text]) => text).join("");

  function marked(row) {
    return make("p", { class: "text", dir: "auto" }, row.parts.map(([text, number]) => {
      if (number < 0) return text;
      const label = row.claims[number].label;
      const link = make("a", { class: `claimed ${MARKS[label][1]}`, href: `#claim-${number}`, title: `claim ${number + 1}: ${label}` }, text);
      // The address keeps the filters, so the page goes there itself.
      link.addEventListener("click", (event) => {
        event.preventDefault();
        const there = link.closest(".body").querySelectorAll(".claim")[number];
        there.focus();
        there.scrollIntoView({ block: "nearest" });
      });
      return link;
    }));
  }

  function claim(one, number) {
    return make("li", { class: "claim", tabindex: "-1" },
      make("div", {}, mark(one.label), make("span", { class: "label" }, ` · claim ${number + 1} · supported ${fixed(one.supported)}, contradicted ${fixed(one.contradicted)}`)),
      make("p", { dir: "auto" }, one.parts.map(([text, missing]) => (missing < 0 ? text : make("span", { class: "missing" }, text)))),
      one.subject ? make("p", { class: "why" }, "Its pronoun was read as ", make("bdi", {}, one.subject), ".") : null,
      one.why ? make("p", { class: "why", dir: "auto" }, one.why) : null,
      one.evidence.map((sentence) => quote(sentence, one.disagreeing.length > 0)),
      one.disagreeing.map((other) => [
        make("p", { class: "why" }, `Another document ${other.label === "contradicted" ? "contradicts" : "supports"} it:`), quote(other, true)]));
  }

  function quote(sentence, dated) {
    return make("blockquote", { dir: "auto" }, sentence.text,
      make("div", { class: "label" }, [sentence.title, sentence.source, dated ? sentence.date : ""].filter(Boolean).join(" · ")));
  }

  function fill(details, row) {
    details.append(make("div", { class: "body" },
      section("Response", make("div", { class: "key-list" }, Object.keys(MARKS).map(mark)), marked(row),
        row.left ? make("p", { class: "label" }, `${count(row.left, "more character")} left out of this page.`) : null),
      section("Claims", row.claims.length
        ? make("ol", { class: "claim-list" }, row.claims.map(claim))
        : make("p", { class: "label" }, "It claims nothing."),
        row.moreClaims ? make("p", { class: "label" }, `${count(row.moreClaims, "more claim")} left out of this page.`) : null)));
  }

  function item(row) {
    const worst = ["contradicted", "not there"].find((label) => row.claims.some((one) => one.label === label)) || "supported";
    const trail = make("span", { class: "trail" }, make("span", { class: "steps" }, row.claims.slice(0, 12).map((one, place) =>
      make("span", { class: `mark ${MARKS[one.label][1]}` }, icon(MARKS[one.label][2], `claim ${place + 1} ${one.label}`)))), fixed(row.score));
    return make("details", { class: "response" },
      make("summary", {}, mark(worst), make("span", { class: "question", dir: "auto" }, textOf(row).slice(0, 400) || "(empty)"), trail));
  }

  function matches(row, state) {
    if (state.label && !row.claims.some((one) => one.label === state.label)) return false;
    return holds(row, state.q, () => [row.id, textOf(row)].join("\n"));
  }

  function order(shown, state) {
    if (state.order === "score") shown.sort((a, b) => a.score - b.score || a.number - b.number);
  }

  listing({ rows, noun: "response", matches, item, fill, order });
})();
