"""Verify-and-Edit: where thoughts disagree, the sentences of one are checked against the documents and put right.

Source: Zhao et al., "Verify-and-Edit: A Knowledge-Enhanced Chain-of-Thought Framework" (ACL 2023), section 3 and algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytrace.methods.base import Documents, MethodRow, Stages, check_questions, register
from pytrace.methods.cot.rationales import Thought
from pytrace.methods.cot.thinking import Thoughtful, ThoughtSettings
from pytrace.models.encoders.encoder import Encoder
from pytrace.records import Answer, Evidence, Reasoning, TextUnit
from pytrace.retrieval.nearest_sentences import nearest_sentences
from pytrace.retrieval.searching import Search
from pytrace.triples.extraction import sentence_units


class _Edit(msgspec.Struct):
    """An uncertain question: its index, the thought to verify and what comes of it."""

    index: int
    thought: Thought
    rationale: tuple[str, ...] = ()
    found: tuple[TextUnit, ...] = ()
    changed: int = 0


def nearest_units(
    verifying: Sequence[str],
    owners: Sequence[int],
    documents: Documents,
    encoder: Encoder,
    settings: ThoughtSettings,
    search: Search | None,
) -> list[list[TextUnit]]:
    """Return the sentences nearest to each verifying question, among what a search finds for it or its owner's documents."""
    if search is not None:
        documents = search(verifying, settings.retriever, settings.top)
        owners = range(len(verifying))
    units = [[unit for document in some for unit in sentence_units(document)] for some in documents]
    texts = [[unit.text for unit in some] for some in units]
    positions = nearest_sentences(verifying, texts, encoder, settings.sentences, owners=owners)
    return [[units[owner][i] for i in row] for owner, row in zip(owners, positions, strict=True)]


class VerifyAndEdit(Thoughtful):
    """Lets thoughts vote, and edits the rationale of the majority where that is none."""

    # Zhao et al. (ACL 2023): a question is uncertain if fewer than half of its samples (rounded up) agree (section
    # 3.1); each sentence of the majority's rationale then becomes a verifying question (3.2), which is answered from
    # the sentences nearest to it (3.3), and the answers take the place of the sentences before the model concludes anew
    # (3.4). The paper retrieves from the web and from Wikipedia, for each verifying question; here from the index that
    # the documents were found in, or else the question's own documents are the source.

    known_as = "verify-and-edit"

    def answer(self, questions: Sequence[str], documents: Documents) -> list[Answer]:
        """Answer questions; all uncertain ones go through every step of verification together."""
        check_questions(questions, documents)
        evidence, votes, chosen, answers = self._vote(questions, documents)
        notes = [list(answer.notes) for answer in answers]
        edits: list[_Edit] = []
        for number, (vote, thought, sources) in enumerate(zip(votes, chosen, documents, strict=True)):
            if vote.certain:
                continue
            if not any(sentence_units(document) for document in sources):
                notes[number].append("there is no document to verify the rationale from")
            elif not thought.sentences:
                notes[number].append("the rationale has no sentence to verify")
            else:
                edits.append(_Edit(number, thought))
        checking = Stages(self._model)
        concluded = self._edit(questions, documents, evidence, edits, checking)
        for edit, text in zip(edits, concluded, strict=True):
            answer = answers[edit.index]
            notes[edit.index].append(f"{edit.changed} of {len(edit.rationale)} sentences of the rationale were edited")
            answers[edit.index] = self._edited(answer, edit, text, checking, len(edits))
        return [
            msgspec.structs.replace(answer, notes=tuple(lines)) for answer, lines in zip(answers, notes, strict=True)
        ]

    def _edit(
        self,
        questions: Sequence[str],
        documents: Documents,
        evidence: Sequence[Evidence],
        edits: Sequence[_Edit],
        stages: Stages,
    ) -> list[str]:
        """Verify and edit rationales, and answer from them."""
        if not edits:
            return []
        assert self._encoder is not None  # every row of the registry gives one
        owners = [number for number, edit in enumerate(edits) for _ in edit.thought.sentences]
        sentences = [sentence for edit in edits for sentence in edit.thought.sentences]
        with stages.stage("ask"):
            verifying = self._verifier.ask([questions[edits[owner].index] for owner in owners], sentences)
        with stages.stage("find"):
            sources = [documents[edit.index] for edit in edits]
            nearest = nearest_units(verifying, owners, sources, self._encoder, self.settings, self._search)
        with stages.stage("verify"):
            verified = self._verifier.answer(verifying, [[unit.text for unit in row] for row in nearest])
        for number, edit in enumerate(edits):
            indices = [position for position, owner in enumerate(owners) if owner == number]
            edit.rationale = tuple(verified[position] or sentences[position] for position in indices)
            edit.changed = sum(new != old for new, old in zip(edit.rationale, edit.thought.sentences, strict=True))
            edit.found = tuple(dict.fromkeys(unit for position in indices for unit in nearest[position]))
        with stages.stage("conclude"):
            return self._thinker.conclude(
                [questions[edit.index] for edit in edits],
                [evidence[edit.index].context for edit in edits],
                [edit.rationale for edit in edits],
            )

    def _edited(self, answer: Answer, edit: _Edit, text: str, stages: Stages, among: int) -> Answer:
        """Return an answer with its edited rationale, and its share of what that cost."""
        before = answer.evidence
        found = tuple(unit.text for unit in edit.found)
        evidence = msgspec.structs.replace(
            before,
            kind="sentences" if before.kind == "none" else before.kind,
            context=(*before.context, *found),
            document_ids=tuple(dict.fromkeys((*before.document_ids, *(unit.document_id for unit in edit.found)))),
            derivation=Reasoning(edit.rationale),
        )
        return self._revised(answer, text, evidence, found, stages, among)


_SUMMARY = "think five times; where thoughts disagree, check the sentences of one against the documents"
register(
    MethodRow(
        "verify-and-edit",
        _SUMMARY,
        VerifyAndEdit,
        ThoughtSettings(),
        needs=frozenset(),
        takes=frozenset({"search"}),
    )
)
