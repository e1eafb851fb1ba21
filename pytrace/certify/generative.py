"""Generative evaluation: a model reasons in numbered steps, and its responses are certified."""

# Source: section 3.2 and 4 and appendix F.2 of the paper.

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from pytrace.check_records import Certificate, GoldQuestion, Response
from pytrace.errors import InputError
from pytrace.kernels.similarity import similarity
from pytrace.kg import KnowledgeBase
from pytrace.kg.paths import neighbourhood
from pytrace.methods.cot.rationales import Thought, majority
from pytrace.models.encoders.encoder import Encoder
from pytrace.models.language_model import Completion, LanguageModel, Prompt
from pytrace.reader.prompts.reasoning import StepDemonstration

Prompting = Literal["cot", "cot-plan", "cot-sc"]
"""Few-shot chain of thought; with a plan of relations before it; or several samples of the first."""

Choice = Literal["majority", "best", "all"]
"""Which of several samples counts: the first that has the majority's answer, the best by its certificate, or each."""

# How far from the entities of a question facts are looked for.
_HOPS = 2
# Around a hub there are more facts than anybody could choose from; the nearest hops come first.
_MOST_FACTS = 2_000

_FROM_MEMORY = "by facts that you know"
_FROM_FACTS = "by some of the facts given before it"
INSTRUCTION = (
    f"Answer the question {_FROM_MEMORY}. Write numbered steps, each of which is one sentence that states one fact "
    'and names both things that it is about; the next step goes on from where the last one ended. End with a line "So the '
    'answer is (…)." with the answer in the parentheses.'
)
PLANNED = (
    f'{INSTRUCTION} Before the steps, write a line that begins with "HINT:" and names the relations that lead from the '
    'question to the answer, with " -> " between them.'
)


class GenerationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How responses are written; sampling and numbers are the paper's (section 4).

    Attributes
    ----------
    demonstrations
        How many labelled responses the model is shown.
    samples
        For ``cot-sc``: how many a question.
    temperature, top_p, seed
        Of the sampling; temperature 0 takes the likeliest words, for one sample.
    max_tokens
        The longest response.
    facts
        How many facts of the graph the model sees with each question. 0, as in the paper: it answers from memory.
    structured
        Whether a grammar holds the model to numbered steps and a conclusion. The paper does without, and counts what has
        no structure.
    """

    demonstrations: Annotated[int, msgspec.Meta(ge=0)] = 5
    samples: Annotated[int, msgspec.Meta(ge=1)] = 4
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 0.7
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    seed: int = 0
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 200
    facts: Annotated[int, msgspec.Meta(ge=0)] = 0
    structured: bool = False


class Reasoner:
    """Lets a language model answer questions in numbered steps, from what it knows."""

    def __init__(
        self,
        model: LanguageModel,
        settings: GenerationSettings | None = None,
        *,
        labelled: Sequence[StepDemonstration] | None = None,
    ) -> None:
        self._model = model
        self.settings = settings or GenerationSettings()
        self._shown = StepDemonstration.last(self.settings.demonstrations, labelled)

    def respond(
        self,
        questions: Sequence[GoldQuestion],
        prompting: Prompting,
        *,
        facts: Sequence[Sequence[str]] | None = None,
        done: Callable[[list[Response]], object] | None = None,
    ) -> list[Response]:
        """Write responses to questions, all in one call."""
        # Section 4 (few-shot CoT, CoT-Plan, CoT-SC) and appendix F.2, in our own words and with examples of our own.
        samples = self.settings.samples if prompting == "cot-sc" else 1
        if samples > 1 and self.settings.temperature == 0:
            raise InputError(
                f"{samples} samples at temperature 0 would all be the same; raise the temperature, for instance to 0.7"
            )
        if not questions:
            return []
        shown = facts or [()] * len(questions)

        def finished(index: int, completions: list[Completion]) -> None:
            if done is not None:
                done(_responses(questions[index], completions))

        rows = self._model.generate(
            [
                self._prompt(question.question, given, prompting)
                for question, given in zip(questions, shown, strict=True)
            ],
            max_tokens=self.settings.max_tokens,
            stop=("\nQ:", "\nQuestion:", "\nFacts:"),
            temperature=self.settings.temperature,
            top_p=self.settings.top_p,
            n=samples,
            seed=self.settings.seed,
            grammar=_grammar(prompting) if self.settings.structured else None,
            done=finished,
        )
        answered = zip(questions, rows, strict=True)
        return [response for question, completions in answered for response in _responses(question, completions)]

    def prompt_hash(self, prompting: Prompting) -> str:
        """Return what the instruction and demonstrations are, as 16 hexadecimal digits: stored responses depend on them."""
        prompt = self._prompt("", ["a fact"] if self.settings.facts else (), prompting)
        return hashlib.sha256(repr(msgspec.structs.astuple(prompt)[:-1]).encode("utf-8", "surrogatepass")).hexdigest()[
            :16
        ]

    def _prompt(self, question: str, facts: Sequence[str], prompting: Prompting) -> Prompt:
        planned = prompting == "cot-plan"
        shown = tuple(
            (_asked(one.question, self._other_facts(place) if facts else ()), _shown(one, planned=planned))
            for place, one in enumerate(self._shown)
        )
        instruction = PLANNED if planned else INSTRUCTION
        if facts:
            instruction = instruction.replace(_FROM_MEMORY, _FROM_FACTS)
        return Prompt(instruction, shown, _asked(question, facts), lasting=True)

    def _other_facts(self, place: int) -> list[str]:
        """Return the facts that a demonstration is shown with: another one's steps, then its own backwards."""
        other = self._shown[place - 1].steps if len(self._shown) > 1 else ()
        return [*other, *reversed(self._shown[place].steps)]


def _responses(question: GoldQuestion, completions: Sequence[Completion]) -> list[Response]:
    gold = question.answers, question.paths, question.topics
    return [
        Response(question.id, question.question, completion.text, *gold, sample=number)
        for number, completion in enumerate(completions)
    ]


def _asked(question: str, facts: Sequence[str]) -> str:
    lines = ["Facts:", *facts] if facts else []
    return "\n".join([*lines, f"Question: {question}"])


class FactFinder:
    """Finds the facts that a question could be answered from: those around the entities that it names, nearest first."""

    def __init__(self, base: KnowledgeBase, encoder: Encoder) -> None:
        self._base = base
        self._encoder = encoder

    def find(self, questions: Sequence[str], count: int) -> list[list[str]]:
        """Find facts for questions, in words."""
        if not questions or count < 1:
            return [[] for _ in questions]
        vectors = self._encoder.encode(list(questions), kind="query")
        found = []
        for vector, mentions in zip(vectors, self._base.columns.mentions.find(questions), strict=True):
            named = sorted({entity for mention in mentions for entity in mention.entities})
            if named:
                near = np.array(neighbourhood(self._base, named, hops=_HOPS, limit=_MOST_FACTS)[0], dtype=np.int64)
                order = np.argsort(-similarity(vector, self._base.vectors(near)), kind="stable")
                numbers = near[order[:count]]
            else:
                numbers = self._base.search(vector[None], count)[1][0]
            found.append([self._base.text(number) for number in numbers.tolist() if number >= 0])
        return found


def choose_samples(certificates: Iterable[Certificate], *, how: Choice = "majority") -> Iterator[Certificate]:
    """Leave one certificate for each question that has several samples."""
    # Section 4: "we sample four outputs, and report the maximum performance across all the outputs".
    for samples in _by_question(certificates):
        if how == "all":
            yield from samples
        elif how == "best":
            yield max(samples, key=lambda sample: (bool(sample.answer_correct), sample.kind == "faithful"))
        else:
            yield samples[max(majority([Thought((), sample.answer) for sample in samples]).first, 0)]


def _by_question(certificates: Iterable[Certificate]) -> Iterator[list[Certificate]]:
    """Part certificates where the samples begin anew: two responses of one id are not yet two samples."""
    samples: list[Certificate] = []
    for certificate in certificates:
        if samples and (certificate.sample == 0 or certificate.id != samples[0].id):
            yield samples
            samples = []
        samples.append(certificate)
    if samples:
        yield samples


def _shown(one: StepDemonstration, *, planned: bool) -> str:
    plan = [f"HINT: {' -> '.join(one.plan)}"] if planned else []
    steps = [f"{number}. {step}" for number, step in enumerate(one.steps, 1)]
    return "\n".join([*plan, *steps, f"So the answer is ({one.answer})."])


def _grammar(prompting: Prompting) -> str:
    """Return a grammar of one to five numbered steps and a conclusion, after a plan if there is to be one."""
    hint = '"HINT: " line ' if prompting == "cot-plan" else ""
    steps = '"5. " line'
    for number in range(4, 1, -1):
        steps = f'"{number}. " line ({steps})?'
    return "\n".join(
        [
            f'root ::= " "? {hint}"1. " line ({steps})? "So the answer is (" name ").\\n"',
            r"line ::= [^\n\r()]{3,200} " + r'"\n"',
            r"name ::= [^\n\r()]{1,80}",
        ]
    )
