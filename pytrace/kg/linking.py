"""Which entities mentions mean: by letters first, and those that letters leave open by what the question is about.

Source: Li et al., "Chain of Knowledge" (2023), section 3.3, which links the mentions of a query by GENRE, a model that writes
an entity's name out of the mention's context. Here any store's own labels are compared, so that no model has to be trained
on its entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytrace.errors import InputError
from pytrace.kg.entities import check_search
from pytrace.kg.fact_store import EntityMatch, FactStore
from pytrace.kg.names import relation_name
from pytrace.models.encoders.encoder import Encoder, encode

# Entities of one name that are told apart at most: so many times as many as are wanted. Each has to be encoded.
_TOLD_APART = 2
# What the store says of an entity: so many triples, and of each name and of all of it so many characters. A small encoder
# reads some 6 tokens a millisecond on two cores; five triples and whole names take longer and tell no more apart, and two
# triples tell 7 % fewer (benches/entity_linking.py).
_TRIPLES, _NAME, _TEXT = 3, 24, 90
# Cosines depend in their last digits on what else is encoded with a text; so many digits do not.
_DIGITS = 4


class Link(msgspec.Struct, frozen=True):
    """An entity that a mention may mean."""

    key: str
    label: str  # the name of the entity that is most like the mention
    fuzzy: float  # how like, from 0 to 1
    # The cosine of what the store says of the entity and the mention's context; None where none was needed or there is no
    # encoder.
    context: float | None
    score: float  # sums up both, from 0 to 1


@dataclass(eq=False)
class EntityLinker:
    """Links mentions to a store's entities.

    Candidates are the entities with a label like the mention. Where a label is the mention itself, up to case and
    punctuation, only such labels count; else those that are nearly as like it as the best. If that leaves several entities,
    each is described by its label and a few of its triples, and scored by ``(1 - w) * fuzzy + w * max(cosine, 0)``, where
    the cosine is that of the embeddings of the description and of the context.
    """

    # Li et al., "Chain of Knowledge" (2023), section 3.3.

    store: FactStore
    encoder: Encoder | None
    _: KW_ONLY
    limit: int = 5
    cutoff: float = 70.0
    context_weight: float = 0.3
    near: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what is out of bounds."""
        check_search(limit=self.limit, cutoff=self.cutoff)
        for option in ("context_weight", "near"):
            if not 0 <= (value := getattr(self, option)) <= 1:
                raise InputError(f"{option} is {value}; give a number from 0 to 1")

    @cached_property
    def _relation_names(self) -> dict[str, str]:
        return {relation.key: relation.name for relation in self.store.relations()}

    def link(self, mentions: Sequence[str], contexts: Sequence[str]) -> list[list[Link]]:
        """Find the entities that mentions mean."""
        # The store is asked once for the candidates of all mentions and once for what it says of those that letters
        # leave open, and each text is encoded once.
        if len(mentions) != len(contexts):
            raise InputError(f"there are {len(mentions)} mentions but {len(contexts)} contexts; give one a mention")
        candidates = self._candidates(mentions)
        pairs = list(dict.fromkeys(zip(mentions, contexts, strict=True)))
        cosines = self._cosines(
            [
                (match.key, context)
                for mention, context in pairs
                if context.strip() and len(candidates[mention]) > 1
                for match in candidates[mention]
            ]
        )
        links = {
            (mention, context): self._ranked(
                [(match, cosines.get((match.key, context))) for match in candidates[mention]]
            )
            for mention, context in pairs
        }
        return [list(links[pair]) for pair in zip(mentions, contexts, strict=True)]

    def knows(self, alternatives: Sequence[Sequence[Sequence[str]]]) -> list[bool]:
        """Tell for each question whether the store has all entities that one of its queries mentions, at least one."""
        candidates = self._candidates(list({name for queries in alternatives for names in queries for name in names}))
        return [any(names and all(candidates[name] for name in names) for names in queries) for queries in alternatives]

    def _candidates(self, mentions: Sequence[str]) -> dict[str, list[EntityMatch]]:
        """Return for each mention the entities between which letters leave it open."""
        candidates: dict[str, list[EntityMatch]] = {mention: [] for mention in mentions}
        named = [mention for mention in candidates if mention.strip()]
        if not named:
            return candidates
        most = self.limit * (_TOLD_APART if self.encoder is not None else 1)
        rows = self.store.find_entities(named, limit=most, cutoff=self.cutoff)
        for mention, matches in zip(named, rows, strict=True):
            once: dict[str, EntityMatch] = {}
            for match in matches:
                if match.score >= self.cutoff:
                    once.setdefault(match.key, match)
            best = max((match.score for match in once.values()), default=0.0)
            # A mention that is a name means who is called so, and nobody who is called nearly so.
            least = 100.0 if best >= 100.0 else best - 100.0 * self.near
            candidates[mention] = [match for match in once.values() if match.score >= least]
        return candidates

    def _cosines(self, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Return for pairs of a key and a context how much they have in common, by their embeddings."""
        if self.encoder is None or not wanted or not self.context_weight:
            return {}
        keys = list(dict.fromkeys(key for key, _ in wanted))
        contexts = list(dict.fromkeys(context for _, context in wanted))
        texts = self._descriptions(keys)
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        described = _unit(encode(self.encoder, list(numbers), "passage"))
        context_vectors = _unit(encode(self.encoder, contexts, "query"))
        row_of = {key: numbers[text] for key, text in zip(keys, texts, strict=True)}
        column_of = {context: number for number, context in enumerate(contexts)}
        rows = [row_of[key] for key, _ in wanted]
        columns = [column_of[context] for _, context in wanted]
        cosines = np.einsum("ij,ij->i", described[rows], context_vectors[columns]).clip(-1.0, 1.0).round(_DIGITS)
        return dict(zip(wanted, cosines.tolist(), strict=True))

    def _descriptions(self, keys: Sequence[str]) -> list[str]:
        """Return what the store says of entities: what they are called, and a few of their triples in words."""
        around = self.store.around(keys, limit=_TRIPLES)
        parts = dict.fromkeys(part for triples in around for each in triples for part in (each.head, each.tail))
        parts_and_keys = list(dict.fromkeys([*keys, *parts]))
        names = {key: name[:_NAME] for key, name in zip(parts_and_keys, self.store.names(parts_and_keys), strict=True)}
        texts = []
        for key, triples in zip(keys, around, strict=True):
            facts = []
            for each in triples:
                relation = self._relation_names.get(each.relation) or relation_name(each.relation)
                facts.append(f"{relation} {names[each.tail]}" if each.head == key else f"{names[each.head]} {relation}")
            texts.append(f"{names[key]}: {', '.join(facts)}"[:_TEXT])
        return texts

    def _ranked(self, candidates: Sequence[tuple[EntityMatch, float | None]]) -> list[Link]:
        """Return the candidates of one mention that score nearly as much as the best, best first."""
        links = []
        for match, cosine in candidates:
            fuzzy = min(match.score, 100.0) / 100.0
            score = fuzzy
            if cosine is not None:
                score = (1 - self.context_weight) * fuzzy + self.context_weight * max(cosine, 0.0)
            links.append(Link(match.key, match.label, fuzzy, cosine, score))
        links.sort(key=lambda link: -link.score)
        return [link for link in links if link.score >= links[0].score - self.near][: self.limit]


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Scale rows to length 1; one of length 0 stays as it is."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    unit: NDArray[np.float64] = np.divide(exact, lengths, out=exact, where=lengths > 0)
    return unit
