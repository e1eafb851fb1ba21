"""Demonstrations for methods that think, verify, query a knowledge base, and judge reasoning paths and claims."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal, get_args

import msgspec

from pytrace.reader.prompts import Demonstration, require, require_text, require_triples, triples_of
from pytrace.records import Triple

ClaimLabel = Literal["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
LABELS: tuple[ClaimLabel, ...] = get_args(ClaimLabel)
"""The labels of FEVER, in the order in which probabilities stand."""

PathKind = Literal["valid", "factual", "incoherent", "misguided"]
QueryForm = Literal["triplet", "sparql"]

_NAME = re.compile(r"(entity|relation):/((?:\\.|[^/\\])*)/")


class QuestionDemonstration(Demonstration, frozen=True):
    """A question, the entity that it is about, and triples with that entity as their head, told from the question alone."""

    # KS-LLM, section 3.1.

    FILE = "questions.jsonl"
    SHAPE = '{"question": text, "subject": text, "triples": [[relation, tail], ...]}'
    FORBIDDEN: ClassVar = {"subject": ";\n\r"}
    question: str
    subject: str
    triple_rows: tuple[tuple[str, str], ...] = msgspec.field(name="triples")

    @property
    def triples(self) -> tuple[Triple, ...]:
        """The triples about the subject."""
        return tuple(Triple(self.subject, *row) for row in self.triple_rows)

    def _validate(self) -> None:
        require(
            self.subject in self.question,
            f"the subject {self.subject!r} is no part of the question; copy it from there letter by letter",
        )
        require(self.triples, f"the question {self.question!r} has no triple; give at least one about {self.subject!r}")
        require_triples("triples", self.triples)


class RationaleDemonstration(Demonstration, frozen=True):
    """A context of ``[title] text`` strings, a question, the sentences that lead to its answer, and the answer."""

    # Wei et al., "Chain-of-Thought Prompting Elicits Reasoning in Large Language Models" (NeurIPS 2022), section 2.

    FILE = "rationales.jsonl"
    SHAPE = '{"context": [text, ...], "question": text, "rationale": [text, ...], "answer": text}'
    context: tuple[str, ...]
    question: str
    rationale: tuple[str, ...]
    answer: str

    def _validate(self) -> None:
        _require_lines("context", self.context)
        _require_lines("rationale", self.rationale)


class VerificationDemonstration(Demonstration, frozen=True):
    """A sentence of a question's rationale, the question that verifies it, and that question's answer from a context."""

    # Zhao et al., "Verify-and-Edit: A Knowledge-Enhanced Chain-of-Thought Framework" (ACL 2023), section 3.2. Some of the
    # sentences are wrong: a model that only sees right ones learns to repeat them.

    FILE = "verifications.jsonl"
    SHAPE = '{"question": text, "sentence": text, "verifying_question": text, "context": [text, ...], "answer": text}'
    question: str
    sentence: str
    verifying_question: str
    context: tuple[str, ...]
    answer: str

    def _validate(self) -> None:
        for name in ("question", "sentence", "verifying_question", "answer"):
            _require_lines(name.replace("_", " "), [getattr(self, name)])
        _require_lines("context", self.context)


class StepDemonstration(Demonstration, frozen=True):
    """A question, the relations that lead from it to its answer, a numbered step for each, and the answer."""

    # "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs", appendix F.2.

    FILE = "steps.jsonl"
    SHAPE = '{"question": …, "plan": [relation, …], "steps": [sentence, …], "answer": …}'
    question: str
    plan: tuple[str, ...]
    steps: tuple[str, ...]
    answer: str

    def _validate(self) -> None:
        if not self.steps or len(self.steps) != len(self.plan):
            raise ValueError(
                f"there are {len(self.steps)} steps and {len(self.plan)} relations in the plan; give one for each, at least one"
            )
        for number, (step, relation) in enumerate(zip(self.steps, self.plan, strict=True), 1):
            require_text(f"step {number}", step, forbidden="\n\r")
            require_text(f"relation {number}", relation, forbidden="\n\r")
        require(
            self.answer in self.steps[-1],
            f"the last step {self.steps[-1]!r} does not name the answer {self.answer!r}; a step must conclude it",
        )


class PathDemonstration(Demonstration, frozen=True):
    """A question with its answer and a path for it, the sentences of a check of that path, and how the path was made."""

    # "Direct Evaluation of Chain-of-Thought in Multi-hop Reasoning with Knowledge Graphs", appendix F.1.

    FILE = "paths.jsonl"
    SHAPE = (
        '{"kind": "valid", "factual", "incoherent" or "misguided", "question": text, "answer": text, '
        '"path": [[head, relation, tail], ...], "check": [text, ...]}'
    )
    FORBIDDEN: ClassVar = {"question": "\n\r", "answer": "\n\r"}
    kind: PathKind
    question: str
    answer: str
    path_row: tuple[tuple[str, str, str], ...] = msgspec.field(name="path")
    check: tuple[str, ...]

    @property
    def path(self) -> tuple[Triple, ...]:
        """The steps of the path."""
        return triples_of(self.path_row)

    @property
    def valid(self) -> bool:
        """Whether the path leads from the question to the answer by true steps."""
        return self.kind == "valid"

    def _validate(self) -> None:
        for name, texts in (("path", self.path_row), ("check", self.check)):
            require(texts, f"the {name} is empty; give at least one step")
        for sentence in self.check:
            require_text("check", sentence, forbidden="\n\r")
        for row in self.path_row:
            for name, part in zip(("head", "relation", "tail"), row, strict=True):
                require_text(name, part, forbidden="\n\r")
        # The kind "factual" is a path with a false step, which may lead to the answer or not.
        leads = self.answer in self._ends()
        if leads != self.valid and self.kind != "factual":
            raise ValueError(
                f"the path is said to be {self.kind}, but {'leads' if leads else 'does not lead'} from an entity that the "
                f"question names to the answer {self.answer!r}; correct the path or its kind"
            )

    def _ends(self) -> set[str]:
        """Return where the path ends if it is read from the entities of the question, each step in either direction."""
        reached = {entity for head, _, tail in self.path_row for entity in (head, tail) if entity in self.question}
        for head, _, tail in self.path_row:
            reached = ({tail} if head in reached else set()) | ({head} if tail in reached else set())
        return reached


class ClaimDemonstration(Demonstration, frozen=True):
    """A claim, sentences that say something about it, and its label."""

    # The labels are those of Thorne et al., "FEVER: a Large-scale Dataset for Fact Extraction and VERification" (NAACL
    # 2018); ours has as many of each, in turn, so that the last few of the file show them all.

    FILE = "claims.jsonl"
    SHAPE = '{"claim": text, "facts": [text, ...], "label": "SUPPORTS", "REFUTES" or "NOT ENOUGH INFO"}'
    claim: str
    facts: tuple[str, ...]
    label: ClaimLabel

    def _validate(self) -> None:
        require(self.facts, f"the claim {self.claim[:80]!r} has no fact; give at least one sentence")
        _require_lines("claim", [self.claim])
        _require_lines("fact", self.facts)


class QueryDemonstration(Demonstration, frozen=True):
    """A question, the relations that its query is chosen from, and the query, of one form."""

    # Li et al., "Chain of Knowledge" (2023), section 4. The paper trains its generators; a prompted one has to be shown.

    FILE = "queries.jsonl"
    SHAPE = '{"form": "triplet" or "sparql", "question": text, "relations": [text, ...], "query": text}'
    FORBIDDEN: ClassVar = {"question": "\n\r", "query": "\n\r"}
    form: QueryForm
    question: str
    relations: tuple[str, ...]
    query: str

    def _validate(self) -> None:
        require(
            self.relations,
            f"the question {self.question[:80]!r} has no relation; list those that its query is chosen from",
        )
        for relation in self.relations:
            require_text("relation", relation, forbidden=";\n\r")
        entities, relations = (_triplet_names if self.form == "triplet" else _sparql_names)(self.query)
        for name in relations:
            require(
                name in self.relations,
                f"the query's relation {name!r} is not among the {len(self.relations)} that are listed; list it",
            )
        for name in entities:
            require(
                name in self.question,
                f"the query's entity {name!r} is no part of the question; copy it from there letter by letter",
            )


def _triplet_names(query: str) -> tuple[list[str], list[str]]:
    """Return the entities and the relations that a triplet names."""
    parts = [part.strip() for part in query.removeprefix("<").removesuffix(">").split(";")]
    if not (query.startswith("<") and query.endswith(">") and len(parts) == 3 and all(parts) and parts.count("?") == 1):
        raise ValueError(
            f"the query {query[:80]!r} is no triplet; write it as <head; relation; tail> with a ? for one of the three"
        )
    head, relation, tail = parts
    return [part for part in (head, tail) if part != "?"], [relation] if relation != "?" else []


def _sparql_names(query: str) -> tuple[list[str], list[str]]:
    """Return the entities and the relations that a SPARQL query names."""
    names = [(kind, re.sub(r"\\(.)", r"\1", name)) for kind, name in _NAME.findall(query)]
    if not re.match(r"(?i)(select|ask)\b.*\{.*\}$", query) or not names:
        raise ValueError(
            f"the query {query[:80]!r} is no SPARQL with names; write it as "
            "select ?x where { entity:/name/ relation:/name/ ?x } or ask { ... }"
        )
    return [name for kind, name in names if kind == "entity"], [name for kind, name in names if kind == "relation"]


def _require_lines(name: str, texts: Sequence[str]) -> None:
    """Refuse no text, empty texts, and texts of more than one line."""
    require(texts, f"the {name} is empty; give at least one text")
    for text in texts:
        require_text(name, text)
        # A line break ends what a model writes.
        require(len(text.splitlines()) == 1, f"the {name} {text!r} has a line break; write it on one line")
