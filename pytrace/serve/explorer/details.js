// What led to an answer and what it cost, for those who ask for it: scores, votes, the text that was read, tokens and seconds.

import { confidenceWords, count, duration, element } from "./elements.js";

/** Return the details of a result, folded away; nothing of a search. */
export function details(result) {
  return element(
    "details",
    { class: "card details" },
    element("summary", {}, "Details"),
    element("p", {}, facts(result)),
    result.withheld ? element("p", {}, `Not given: “${result.withheld}”, confidence ${confidenceWords(result)}.`) : null,
    scores(result.evidence.chains ?? []),
    votes(result.evidence.sources ?? []),
    context(result.evidence),
    costs(result),
  );
}

/** Return remarks as a list, or nothing if there are none. */
export function notes(texts) {
  return texts.length
    ? element(
        "ul",
        { class: "notes" },
        texts.map((text) => element("li", {}, text)),
      )
    : null;
}

function facts({ method, context_tokens: tokens, evidence }) {
  const read = tokens ? `${count(tokens, "token")} of evidence` : "";
  return [`Method ${method}`, `evidence: ${evidence.kind}`, read].filter(Boolean).join(" · ");
}

function scores(chains) {
  const scored = chains.map(({ score, steps }, index) => {
    const probabilities = steps.map(({ probability }) => probability).filter((value) => value != null);
    const parts = [
      score == null ? "" : `log-probability ${score.toFixed(2).replace("-", "−")}`,
      probabilities.length ? `steps ${probabilities.map((value) => value.toFixed(2)).join(", ")}` : "",
    ].filter(Boolean);
    return parts.length ? `Chain ${index + 1}: ${parts.join("; ")}` : "";
  });
  return notes(scored.filter(Boolean));
}

function votes(sources) {
  const found = sources.filter(({ votes }) => votes).sort((a, b) => b.votes - a.votes);
  if (!found.length) return null;
  return element("p", {}, `Votes of the chains: ${found.map(({ title, votes }) => `${title} (${votes})`).join(", ")}.`);
}

/** Return what the method read: its context, or the texts of the passages where that is the same. */
function context({ context: texts, sources = [] }) {
  const read = texts?.length ? texts : sources.filter((source) => source.read).map(({ title, text }) => `${title}: ${text}`);
  if (!read.length) return null;
  const list = element(
    "ol",
    { class: "context" },
    read.map((text) => element("li", {}, text)),
  );
  return [element("h3", {}, "Text that was read"), list];
}

function costs({ seconds, usage }) {
  const names = [...new Set([...Object.keys(seconds), ...Object.keys(usage)])];
  if (!names.length) return null;
  const head = ["Stage", "Time", "Calls", "Tokens computed", "Tokens generated"];
  const rows = names.map((name) => {
    const spent = usage[name];
    const cells = [duration(seconds[name] ?? spent.seconds), spent?.calls, spent?.evaluated_tokens, spent?.generated_tokens];
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      cells.map((cell) => element("td", {}, typeof cell === "number" ? cell.toLocaleString("en") : (cell ?? ""))),
    );
  });
  return element(
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
  );
}
