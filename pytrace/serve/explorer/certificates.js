// A certificate: of what kind a response is and why, and each of its steps beside the graph's triples.

import { element, placeLine } from "./elements.js";

const KINDS = {
  faithful: ["good", "Faithful", "every step stands in the graph and leads on to the answer"],
  unfaithful: ["bad", "Unfaithful", ""],
  undecided: ["open", "Undecided", "the graph says nothing about a step, and nothing against the others"],
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

const CLAIMS = {
  supported: ["good", "✓ Supported"],
  contradicted: ["bad", "✕ Contradicted"],
  "not there": ["open", "? Not there"],
};
const WORST = ["contradicted", "not there", "supported"];

/** Return what the passages say of each claim of an answer as a section. */
export function claimsSection(claims) {
  return element(
    "section",
    { class: "card certificate", id: "claims" },
    element("h2", {}, "Claims of the answer, checked against the passages"),
    element("ol", { class: "certified" }, claims.map(checked)),
  );
}

/** Return a line that says of what kind each certificate is, and what the claims come to, and leads there. */
export function verdicts(certificates, claims) {
  if (!certificates.length && !claims.length) return null;
  const line = certificates.map((certificate) => {
    const [colour, kind] = KINDS[certificate.kind];
    return element(
      "a",
      { href: `#${idOf(certificate)}` },
      badge(colour, kind),
      element("span", {}, certificate.id || "certificate"),
    );
  });
  if (claims.length) {
    const worst = WORST.find((label) => claims.some((claim) => claim.label === label));
    line.push(element("a", { href: "#claims" }, badge(...CLAIMS[worst]), element("span", {}, "passages")));
  }
  return element("p", { class: "verdicts" }, line);
}

const idOf = (certificate) => `certificate-${certificate.id.replace(/\W+/g, "-")}`;

function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1).replace(/\.$/, "")}.` : "";
}

function badge(colour, text) {
  return element("span", { class: `badge ${colour}` }, text);
}

function checked(claim) {
  const [colour, text] = CLAIMS[claim.label];
  const [nearest] = claim.evidence;
  return element(
    "li",
    { class: colour },
    element("p", {}, badge(colour, text), " ", element("span", { class: "said" }, claim.text)),
    element("p", { class: "reason" }, sentence(claim.reason)),
    nearest ? element("p", { class: "triple" }, nearest.text) : null,
    placeLine(nearest?.source ?? ""),
  );
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
