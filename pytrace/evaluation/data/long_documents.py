"""Questions with long documents: cut into passages, and gold sentences and documents named by the passages that hold them."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from pytrace.documents.mentions import holds_any
from pytrace.documents.passages import Block, Extracted, cut_passages, size_of
from pytrace.errors import InputError
from pytrace.records import Document, Question


def cut_question(question: Question, words: int) -> Question:
    """Cut the documents of a question that have more words into passages of at most so many.

    A gold sentence becomes those of the passages that have it, or a part of it. A gold document becomes the passages with its
    gold sentences, without those the ones that hold a gold answer, and without these all of it.
    """
    if question.grades:
        raise InputError(
            "the data grade documents as a whole, which says nothing of passages; leave out --passage-words"
        )
    documents: list[Document] = []
    names: dict[str, list[str]] = {}
    facts: list[tuple[str, int]] = []
    gold = defaultdict[str, list[int]](list)
    for id, sentence in question.supporting_facts:
        gold[id].append(sentence)
    for document in question.documents:
        if size_of(document.text) <= words:
            documents.append(document)
            facts += [(document.id, sentence) for sentence in gold.pop(document.id, ())]
            continue
        passages, places = _passages(document, words)
        documents += passages
        held = [place for sentence in gold.pop(document.id, ()) for place in places[sentence]]
        facts += held
        supporting = [id for id, _ in held] or [each.id for each in passages if holds_any(each.text, question.answers)]
        names[document.id] = supporting or [each.id for each in passages]
    facts += [(id, sentence) for id, sentences in gold.items() for sentence in sentences]
    named = itertools.chain.from_iterable(names.get(id, [id]) for id in question.supporting_documents)
    return msgspec.structs.replace(
        question,
        documents=tuple(documents),
        supporting_documents=tuple(dict.fromkeys(named)),
        supporting_facts=tuple(dict.fromkeys(facts)),
    )


def _passages(document: Document, words: int) -> tuple[list[Document], Sequence[list[tuple[str, int]]]]:
    """Return a document's passages, and for each of its sentences where they have it, or parts of it."""
    starts = list(itertools.accumulate((len(sentence) + 1 for sentence in document.sentences[:-1]), initial=0))
    extracted = Extracted(document.title, [Block(document.text)])
    passages = cut_passages(document, extracted, words=words, sentences=[document.sentences])
    places: list[list[tuple[str, int]]] = [[] for _ in document.sentences]
    for passage in passages:
        assert passage.origin is not None  # they are made with one
        for index, start in enumerate(passage.origin.sentences):
            places[bisect_right(starts, start) - 1].append((passage.id, index))
    return passages, places
