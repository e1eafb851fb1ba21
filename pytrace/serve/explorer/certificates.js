// A certificate: of what kind a response is and why, and each of its steps beside the graph's triples.

import { element, placeLine } from "./elements.js";

const KINDS = {
  faithful: ["good", "Faithful", "every step stands in the graph and leads on to the answer"],
  unfaithful: ["bad", "Unfaithful", ""],
  abstained: ["open", "Abstained", "no answer was given"],
  unstructured: ["open", "Unstructured", "the response has no steps to check"],
};
const ERRORS = {
  factual: "a step is not in the graph",
  incoherent: "a step does not go on from where the last one ended",
  answer: "the steps lead elsewhere than to the answer",
};
const STEPS = {
  supported: ["good", "✓ Supported"],
  unsupported: ["bad", "✕ Unsupported"],
  undecided: ["open", "? Undecided"],
};

/** Return a certificate as a section. */
export function certificateSection(certificate) {
  const [colour, kind, meaning] = KINDS[certificate.kind];
  const why = certificate.error ? ERRORS[certificate.error] : meaning;
  return element(
    "section",
    { class: "card certificate", id: idOf(certificate) },
    element("h2", {}, certificate.id ? `Certificate of ${certificate.id}` : "Certificate"),
    element("p", { class: "verdict" }, badge(colour, kind), why ? ` ${sentence(why)}` : ""),
    certificate.reason ? element("p", { class: "reason" }, sentence(certificate.reason)) : null,
    certificate.steps.length ? element("ol", { class: "certified" }, certificate.steps.map(step)) : null,
  );
}

/** Return a line that says of what kind each certificate is, and leads there. */
export function verdicts(certificates) {
  if (!certificates.length) return null;
  const line = certificates.map((certificate) => {
    const [colour, kind] = KINDS[certificate.kind];
    return element(
      "a",
      { href: `#${idOf(certificate)}` },
      badge(colour, kind),
      element("span", {}, certificate.id || "certificate"),
    );
  });
  return element("p", { class: "verdicts" }, line);
}

const idOf = (certificate) => `certificate-${certificate.id.replace(/\W+/g, "-")}`;

function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1).replace(/\.$/, "")}.` : "";
}

function badge(colour, text) {
  return element("span", { class: `badge ${colour}` }, text);
}

function step(certified) {
  const [colour, text] = STEPS[certified.status];
  // What a supported step says, its reason names.
  const triple = certified.status === "supported" ? null : certified.match?.triple;
  return element(
    "li",
    { class: colour },
    element("p", {}, badge(colour, text), " ", element("span", { class: "said" }, certified.text)),
    element(
      "p",
      { class: "reason" },
      sentence(certified.reason),
      certified.follows ? "" : " It does not go on from the step before.",
    ),
    triple
      ? element(
          "p",
          { class: "triple" },
          "Nearest in the graph: ",
          [triple.head, triple.relation, triple.tail].join(" → "),
        )
      : null,
    placeLine(certified.source),
  );
}
