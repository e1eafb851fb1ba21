"""A question becomes its features: a model writes them as JSON that a grammar holds to its shape.

Source: "What External Knowledge is Preferred by LLMs? Characterizing and Exploring Chain of Evidence in Imperfect Context",
section 3.1 and appendix G. The paper asks twice, for intent and nodes and then for relations; here one answer has all three,
so that a question costs one prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

from pytrace.chain_of_evidence.features import FeatureDemonstration, Features
from pytrace.kernels.fuzzy import partial_ratio, ratio
from pytrace.models.grammars import escaped
from pytrace.models.language_model import LanguageModel, Prompt
from pytrace.records import Feature
from pytrace.storage.foreign_json import decode_json

INSTRUCTION = (
    "Take the question apart. The intent says in a few words what kind of fact is asked for. The nodes are the things that "
    "the question names, copied from it. A relation says what the question tells of two nodes. Write JSON."
)

# A node is a detail of the question (appendix G), so what the question does not hold was made up.
_GROUNDED = 80.0
# The end of a relation that is nearly a node means that node.
_SAME_NODE = 80.0

# What the grammar lets through at most, so that a model that repeats itself comes to an end.
_MOST_NODES = 6
_MOST_RELATIONS = 4
_MOST_WORDS = 8
_MOST_CHARACTERS = 80


class Extraction(msgspec.Struct, frozen=True):
    """A question's features, what was dropped of the model's output and why, and whether the output had to be repaired."""

    features: Features
    dropped: tuple[str, ...] = ()
    malformed: bool = False


class FeatureExtractor:
    """Lets a language model write each question's features, all questions in one call."""

    def __init__(
        self,
        model: LanguageModel,
        *,
        demonstrations: int = 5,
        spans: bool = True,
        grammar: bool = True,
        max_tokens: int = 160,
        labelled: Sequence[FeatureDemonstration] | None = None,
    ) -> None:
        self._model = model
        self._shown = FeatureDemonstration.last(demonstrations, labelled)
        self._spans = spans
        self._grammar = grammar
        self._max_tokens = max_tokens

    def extract(self, questions: Sequence[str]) -> list[Extraction]:
        """Find the features of questions."""
        if not questions:
            return []
        pairs = tuple((f"Question: {shown.question}", _as_json(shown)) for shown in self._shown)
        prompts = [Prompt(INSTRUCTION, pairs, f"Question: {question}", separator="\n") for question in questions]
        grammar = [feature_grammar(question, spans=self._spans) for question in questions] if self._grammar else None
        # A grammar ends the answer by itself; without one a blank line or a made-up next question does.
        completions = self._model.generate(
            prompts, max_tokens=self._max_tokens, stop=() if grammar else ("\n\n", "Question:"), grammar=grammar
        )
        return [
            read_features(completion[0].text, question)
            for completion, question in zip(completions, questions, strict=True)
        ]


def _as_json(shown: FeatureDemonstration) -> str:
    """Return a demonstration's features as the model is to write them."""
    relations = [{"nodes": [first, second], "relation": relation} for first, relation, second in shown.relations]
    return json.dumps({"intent": shown.intent, "nodes": shown.nodes, "relations": relations}, ensure_ascii=False)


# A word may have an apostrophe, a hyphen, a comma or a full stop within: "O'Neill", "3,500", "U.S".
_WORDS = re.compile(r"(\w+(?:['’.,-]\w+)*)")


def feature_grammar(question: str, *, spans: bool = True) -> str:
    """Return a GBNF grammar of the JSON of a question's features."""
    text = r'"\"" [^"\\\x7F\x00-\x1F]{1,' + str(_MOST_CHARACTERS) + r'} "\""'
    rules = [
        r'root ::= "{\"intent\": " text ", \"nodes\": [" nodes "], \"relations\": [" relations "]}"',
        f"text ::= {text}",
        f'nodes ::= (node (", " node){{0,{_MOST_NODES - 1}}})?',
        f'relations ::= (relation (", " relation){{0,{_MOST_RELATIONS - 1}}})?',
        r'relation ::= "{\"nodes\": [" node ", " node "], \"relation\": " node "}"',
    ]
    pieces = _WORDS.split(question)
    words, between = pieces[1::2], pieces[2::2]
    if not spans or not words:
        return "\n".join([*rules, "node ::= text"])
    last = len(words) - 1
    starts = " | ".join(f"w{number}-{min(_MOST_WORDS, last - number + 1)}" for number in range(len(words)))
    rules.append(f'node ::= "\\"" ({starts}) "\\""')
    # The rule `w3-2` is word 3 and at most one more behind it, spaced as in the question.
    for number, word in enumerate(words):
        for left in range(1, min(_MOST_WORDS, last - number + 1) + 1):
            more = f' ("{_in_json(between[number])}" w{number + 1}-{left - 1})?' if left > 1 else ""
            rules.append(f'w{number}-{left} ::= "{_in_json(word)}"{more}')
    return "\n".join(rules)


def _in_json(text: str) -> str:
    """Return a text as it stands in a GBNF literal of a JSON string."""
    return escaped(json.dumps(text, ensure_ascii=False)[1:-1])


class _RelationJson(msgspec.Struct):
    nodes: tuple[str, str]
    relation: str


class _FeaturesJson(msgspec.Struct):
    intent: str
    nodes: list[str]
    relations: list[_RelationJson] = []


def read_features(text: str, question: str) -> Extraction:
    """Read the features that a model wrote, however badly, and drop what cannot be one."""
    try:
        written = decode_json(text.strip().encode("utf-8", "replace"), _FeaturesJson)
        malformed = False
    except ValueError:
        written, malformed = _salvaged(text), True
    dropped: list[str] = []
    nodes: dict[str, str] = {}
    lowered = question.casefold()
    for node in map(_clean, written.nodes):
        if not node or node.casefold() in nodes:
            continue
        if partial_ratio(node.casefold(), lowered) < _GROUNDED:
            dropped.append(f"the node {node!r} is not in the question")
        elif len(nodes) < _MOST_NODES:
            nodes[node.casefold()] = node
        else:
            dropped.append(f"the node {node!r} is one more than {_MOST_NODES}")
    relations: dict[tuple[str, ...], Feature] = {}
    for relation in written.relations:
        pair = tuple(_nearest(_clean(end), nodes) for end in relation.nodes)
        description = _clean(relation.relation)
        if "" in pair or pair[0] == pair[1] or not description:
            dropped.append(f"the relation {description!r} is not between two nodes of the question")
        elif len(relations) < _MOST_RELATIONS:
            relations.setdefault((*pair, description.casefold()), Feature("relation", description, pair))
    features = Features(_clean(written.intent), tuple(nodes.values()), tuple(relations.values()))
    return Extraction(features, tuple(dropped), malformed)


# A model that no grammar holds breaks off, or leaves out a bracket; what is whole before that still tells something.
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_INTENT = re.compile(rf'"intent"\s*:\s*{_TEXT}', re.IGNORECASE)
_NODES = re.compile(r'"nodes"\s*:\s*\[([^\]{}]*)', re.IGNORECASE)
_RELATION = re.compile(rf'"nodes"\s*:\s*\[\s*{_TEXT}\s*,\s*{_TEXT}\s*\]\s*,\s*"relation"\s*:\s*{_TEXT}', re.IGNORECASE)


def _salvaged(text: str) -> _FeaturesJson:
    """Read what is whole in malformed output: the intent, the first list of nodes, the relations."""
    intent = _INTENT.search(text)
    nodes = _NODES.search(text)
    relations = [
        _RelationJson((_unescaped(first), _unescaped(second)), _unescaped(description))
        for first, second, description in _RELATION.findall(text)
    ]
    return _FeaturesJson(
        _unescaped(intent.group(1)) if intent else "",
        [_unescaped(node) for node in re.findall(_TEXT, nodes.group(1))] if nodes else [],
        relations,
    )


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _clean(text: str) -> str:
    """Return a text without control characters, lone surrogates, and blanks at its ends or in rows."""
    # What no grammar bounds may be of any length, and is quoted in what is said of dropped features.
    readable = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(character if character.isprintable() else " " for character in readable).split())[
        : 4 * _MOST_CHARACTERS
    ]


def _nearest(end: str, nodes: dict[str, str]) -> str:
    """Return the node that the end of a relation means; "" if it means none."""
    lowered = end.casefold()
    if lowered in nodes:
        return nodes[lowered]
    best = max(nodes, key=lambda node: ratio(lowered, node), default="")
    return nodes[best] if best and ratio(lowered, best) >= _SAME_NODE else ""
