"""The one road: requests of all kinds go in, results come out in their order, and each shows where its answer is from."""

from __future__ import annotations

import gc
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import pytrace
from pytrace.engine import corpus as corpora
from pytrace.engine.findings import answer_findings
from pytrace.engine.questions import NOT_A_QUESTION, is_question
from pytrace.engine.running import NOT_FOUND
from pytrace.errors import InputError
from pytrace.models.scripted import HashEncoder, ScriptedModel
from pytrace.records import Answer, Chain, ChainSearch, Document, Evidence, Origin, TextUnit
from pytrace.results import Request, Result

EXAMPLES = Path(__file__).parents[2] / "examples"
FERRY = Document(
    "ferry", "Marigold Tern", ("The Marigold Tern was built in 1931.", "It is owned by Brackwater Ferries.")
)
COMPANY = Document("company", "Brackwater Ferries", ("The firm has nine boats.", "Tobias Rook founded it in 1902."))
OTHERS = [Document(f"loaf{number}", f"Loaf {number}", (f"Loaf {number} is baked.",)) for number in range(30)]
QUESTION = "Who founded the company that owns the Marigold Tern?"
METHODS = ("rag", "dense", "rrf", "trace", "trace-doc", "hops")
FREE = ("reading=free",)


def scripted(said: Sequence[str] | Callable[[str], str] = ("Tobias Rook",)) -> pytrace.Engine:
    engine = pytrace.Engine()
    vars(engine).update(model=ScriptedModel(said), encoder=HashEncoder())
    return engine


def require_the_answer_at_the_end(result: Result, text: str = "") -> None:
    """Fail unless the first chain ends at a sentence of its source that holds the answer."""
    last = result.evidence.chains[0].steps[-1]
    assert (text or result.answer).casefold() in last.sentence.casefold()
    if last.answer is not None:
        assert last.sentence[slice(*last.answer)].casefold() == (text or result.answer).casefold()
    source = result.evidence.sources[last.source]
    assert last.sentence in source.text or last.sentence == source.title
    for number, step in enumerate(result.evidence.chains[0].steps, 1):
        assert 0 <= step.after < number


class TestRequests:
    def test_requests_of_several_methods_and_tasks_come_back_in_order(self):
        requests = [
            Request(question=QUESTION, method="rag", settings=FREE),
            Request(question="Which loaf is baked?", task="search", passages=3),
            Request(question="Tobias Rook founded it in 1902.", task="judge"),
            Request(question="Hello"),
            Request(question=QUESTION, settings=FREE),
            Request(question="Who built it?", method="rag", settings=FREE),
            Request(question=QUESTION, task="search", method="trace-doc"),
        ]
        results = scripted().run(requests, [FERRY, COMPANY, *OTHERS])
        assert [result.question for result in results] == [request.question for request in requests]
        assert [result.method for result in results] == [
            "rag",
            "search",
            "checker (the small model)",
            "",
            "hops",
            "rag",
            "trace-doc",
        ]
        answers = ["Tobias Rook", "", "SUPPORTS", "", "Tobias Rook", "Tobias Rook", ""]
        assert [result.answer for result in results] == answers
        assert len([source for source in results[1].evidence.sources if source.relevance is not None]) == 3
        assert results[2].check is not None
        assert results[6].evidence.chains
        searched = [result.seconds.get("search", 0.0) > 0 for result in results]
        assert searched == [True, True, False, False, True, True, True]

    def test_a_request_has_documents_of_its_own_or_those_of_the_call(self):
        requests = [
            Request(question=QUESTION, settings=FREE, documents=(FERRY, COMPANY)),
            Request(question=QUESTION, settings=FREE, documents=tuple(OTHERS)),
            Request(question=QUESTION, settings=FREE),
        ]
        own, others, call = scripted().run(requests, [*OTHERS, COMPANY])
        assert {source.id for source in own.evidence.sources} == {"ferry", "company"}
        assert {source.id for source in others.evidence.sources} <= {document.id for document in OTHERS}
        assert "ferry" not in {source.id for source in call.evidence.sources}
        assert call.evidence.chains[0].steps[-1].sentence == COMPANY.sentences[1]
        require_the_answer_at_the_end(own)

    @pytest.mark.parametrize("method", ["rag", "hops", "trace-doc"])
    def test_the_same_ids_in_two_requests_are_two_documents(self, method):
        requests = [
            Request(question=QUESTION, method=method, settings=FREE, documents=(Document("0", title, (sentence,)),))
            for title, sentence in (("A", "Tobias Rook founded it."), ("B", "It was Tobias Rook, they say."))
        ]
        for result, request in zip(scripted().run(requests), requests, strict=True):
            assert request.documents is not None
            assert result.evidence.sources[0].title == request.documents[0].title
            assert result.evidence.chains[0].steps[-1].sentence == request.documents[0].text

    def test_a_batch_answers_as_each_request_alone(self):
        engine = scripted(lambda prompt: prompt.rpartition("Question:")[2].split()[-1].strip("?"))
        requests = [
            Request(question=f"Is {word} founded", method=method, settings=FREE, passages=passages)
            for word in ("Rook", "Tern")
            for method in ("hops", "rag")
            for passages in (3, 10)
        ]
        corpus = pytrace.Corpus([*OTHERS, FERRY, COMPANY])
        together = engine.run(requests, corpus)
        for request, result in zip(requests, together, strict=True):
            (alone,) = engine.run([request], corpus)
            assert (result.answer, result.evidence) == (alone.answer, alone.evidence)

    def test_no_request_gives_no_result(self):
        assert scripted().run([], [FERRY]) == []
        assert scripted().run([]) == []

    def test_a_single_question_has_the_options_of_a_request(self):
        engine = scripted()
        result = engine.ask(QUESTION, [FERRY, COMPANY], method="rag", settings=["reading=free"], check=True)
        assert result.answer == "Tobias Rook"
        assert result.check is not None
        assert result.check.claims
        assert engine.search(QUESTION, [FERRY, COMPANY], chains=1).evidence.chains[1:] == ()
        with pytest.raises(InputError, match="there is no option 'temperature' of a question; choose among chains"):
            engine.ask(QUESTION, [FERRY], temperature=1)

    @pytest.mark.parametrize("corpus", [True, False])
    @pytest.mark.parametrize("method", ["", "rag"])
    def test_filters_choose_among_documents_of_both_kinds(self, corpus, method):
        dated = [
            Document(f"r{year}", "Report", (f"The mayor spoke in {year}.",), "r.txt", Origin(f"r{year}", "R", metadata={"y": year}))
            for year in (2019, 2020, 2021)
        ]  # fmt: skip
        documents = None if corpus else tuple(dated)
        for task in ("answer", "search"):
            request = Request(
                question="When did the mayor speak?",
                task=task,
                method=method,
                settings=FREE if method or task == "answer" else (),
                where=("y>=2020",),
                documents=documents,
            )
            (result,) = scripted(["2020"]).run([request], dated if corpus else None)
            assert {source.id for source in result.evidence.sources} == {"r2020", "r2021"}
        (result,) = scripted(["2020"]).run(
            [Request(question="When did the mayor speak?", where=("y>2021",), documents=documents)],
            dated if corpus else None,
        )
        assert (result.answer, result.reason, result.evidence.sources) == ("", NOT_FOUND, ())


class TestEvents:
    def test_each_request_has_its_stages_in_order(self):
        events: list[tuple[str, int, Result]] = []
        requests = [
            Request(question=QUESTION, settings=FREE),
            Request(question="Thanks!"),
            Request(question="Which loaf is baked?", settings=FREE),
            Request(question=QUESTION, task="search"),
            Request(question=QUESTION, task="search", method="rag"),
            Request(question=QUESTION, method="rag", settings=FREE, documents=(FERRY, COMPANY)),
        ]
        results = scripted().run(requests, [*OTHERS, FERRY, COMPANY], on_event=lambda *event: events.append(event))
        stages = [[stage for stage, number, _ in events if number == asked] for asked in range(len(requests))]
        assert stages == [
            ["search", "evidence", "answer"],
            ["answer"],
            ["search", "evidence", "answer"],
            ["search"],
            ["search", "evidence"],
            ["evidence", "answer"],
        ]
        last = {number: result for _, number, result in events}
        assert [last[number] for number in range(len(requests))] == results
        for stage, number, result in events:
            assert result.question == requests[number].question
            assert stage == "answer" or not result.answer

    def test_an_error_of_the_listener_reaches_the_caller(self):
        def fail(*_: object) -> None:
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError, match="no more"):
            scripted().run([Request(question=QUESTION)], [FERRY], on_event=fail)


class TestErrors:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"question": " \n"}, "the question is empty; ask something"),
            ({"min_confidence": 1.5}, "the question has min_confidence=1.5; give a probability from 0 to 1"),
            ({"min_confidence": float("nan")}, "the question has min_confidence=nan"),
            ({"method": "none"}, "there is no method 'none'; choose one of hops, trace,"),
            ({"settings": ("a=b",)}, "the setting 'a=b' of hops is not name=value"),
            ({"where": ("date",)}, "'date' is no filter"),
            ({"passages": 0}, "the question asks for 0 passages and 3 chains; ask for 1 or more of each"),
            ({"method": "gold"}, "gold reads the supporting documents of a data set"),
            ({"task": "judge", "method": "rag"}, "rag cannot judge claims"),
        ],
    )
    def test_a_wrong_request_is_one_sentence(self, fields, message):
        with pytest.raises(InputError) as failure:
            scripted().run([Request(**{"question": QUESTION, **fields})], [FERRY])
        assert str(failure.value).startswith(message)
        assert "\n" not in str(failure.value)

    def test_the_wrong_one_of_several_is_named(self):
        with pytest.raises(InputError, match="question 2 of 3 is empty"):
            scripted().run([Request(question=text) for text in ("a", "", "c")], [FERRY])

    @pytest.mark.parametrize("corpus", [None, [], [Document("1", "Title", ())], [Document("1", "Title", (" ",))]])
    def test_nothing_to_answer_from_is_one_sentence(self, corpus):
        for fields, message in (
            ({}, "hops has nothing to answer from; give documents or an index"),
            ({"method": "rag"}, "rag has nothing to answer from"),
            ({"task": "search"}, "there is nothing to search; give documents or an index"),
            ({"task": "judge"}, "there is nothing to judge a claim by"),
        ):
            with pytest.raises(InputError, match=message):
                scripted().run([Request(question=QUESTION, **fields)], corpus)

    def test_a_method_that_needs_no_documents_answers_without(self):
        assert scripted().run([Request(question=QUESTION, method="standard")])[0].answer == "Tobias Rook"


class TestAbstention:
    def test_an_unlikely_answer_is_withheld_for_the_closest_passages(self):
        engine = scripted()
        corpus = pytrace.Corpus([*OTHERS, FERRY, COMPANY])
        given = engine.ask(QUESTION, corpus, method="rrf", settings=("reading=span",), min_confidence=0.0)
        assert given.answer
        assert not given.abstained
        assert given.confidence is not None
        assert given.confidence < 1
        result = engine.ask(QUESTION, corpus, method="rrf", settings=("reading=span",), min_confidence=1.0)
        assert (result.answer, result.abstained, result.reason) == ("", True, NOT_FOUND)
        assert result.withheld == given.answer
        assert result.confidence == given.confidence
        assert result.evidence.chains == ()
        (found,) = corpus.search([QUESTION], engine)
        assert [source.id for source in result.evidence.sources] == [
            passage.id for passage in found.of(found.ranking.rows[:3])
        ]
        assert all(source.text and source.relevance for source in result.evidence.sources)

    def test_documents_of_ones_own_are_the_closest_passages_too(self):
        request = Request(question=QUESTION, method="rag", settings=("reading=span",), min_confidence=1.0)
        (result,) = scripted().run([request], [FERRY, COMPANY])
        assert result.abstained
        assert {source.id for source in result.evidence.sources} == {"ferry", "company"}

    @pytest.mark.parametrize("method", ["hops", "rag", "trace-doc"])
    def test_where_nothing_is_read_the_words_of_the_model_are_withheld(self, method):
        request = Request(question=QUESTION, method=method, settings=FREE, documents=())
        (result,) = scripted().run([request])
        assert (result.answer, result.abstained, result.reason, result.withheld) == ("", True, NOT_FOUND, "Tobias Rook")

    @pytest.mark.parametrize(
        "text", ["Hello", "Thanks!", "你好", "你好吗？", "Merci beaucoup !", "?!", "ok", "안녕하세요", "hello?"]
    )
    def test_a_greeting_is_said_to_be_no_question(self, text):
        engine = pytrace.Engine()
        vars(engine).update(encoder=HashEncoder())  # no language model is loaded for it
        result = engine.ask(text, [FERRY])
        assert (result.answer, result.abstained, result.reason) == ("", True, NOT_A_QUESTION)
        assert result.evidence.sources == ()

    @pytest.mark.parametrize(
        "text",
        [
            "Hello world program: who wrote it?",
            "Who thanks whom?",
            "WebSocket support",
            "北京在哪里？",
            "What is OK Computer?",
            "Hi, which ferry was built in 1931",
        ],
    )
    def test_a_question_is_one_however_it_begins(self, text):
        assert is_question(text)
        assert scripted().ask(text, [FERRY], settings=FREE).reason != NOT_A_QUESTION


class TestBadRequests:
    @pytest.mark.parametrize(
        ("request_", "message"),
        [
            ("Who?", "the question is not a pytrace.Request: 'Who?'"),
            (
                Request(question="Who?", task="guess"),
                "the question has an unknown task, 'guess'; use one of answer, search, judge",
            ),
            (Request(question=3), "the question is not a valid request: Expected `str`, got `int` - at `$.question`"),
            (
                Request(question="Who?", settings=(3,)),
                "the question is not a valid request: Expected `str`, got `int` - at `$.settings[0]`",
            ),
            (
                Request(question="Who?", documents="docs/"),
                "the question is not a valid request: Expected `array | null`, got `str` - at `$.documents`",
            ),
            (
                Request(question="Who?", min_confidence="high"),
                "the question is not a valid request: Expected `float | null`, got `str` - at `$.min_confidence`",
            ),
        ],
    )
    def test_what_is_no_request_is_refused_in_one_sentence(self, request_, message):
        with pytest.raises(InputError, match=re.escape(message)):
            scripted().run([request_], [FERRY])

    def test_requests_may_come_from_a_generator(self):
        results = scripted().run((Request(question=QUESTION, settings=FREE) for _ in range(2)), [FERRY, COMPANY])
        assert [result.answer for result in results] == ["Tobias Rook"] * 2

    def test_a_withheld_answer_is_not_checked(self):
        kept, withheld = (
            scripted().ask(QUESTION, [FERRY, COMPANY], settings=("reading=span",), check=True, min_confidence=least)
            for least in (0.0, 1.0)
        )
        assert kept.check is not None
        assert (withheld.abstained, withheld.answer, withheld.withheld, withheld.check) == (True, "", kept.answer, None)


CLOCKMAKER = Document(
    "clockmaker", "Isolde Tarrant",
    ("Isolde Tarrant (born 3 May 1841) was a clockmaker.", "She was born in Tessel.", "She was married to the painter Edmund Rask."),
)  # fmt: skip
PAINTER = Document(
    "painter", "Edmund Rask",
    ("Edmund Rask (born 12 June 1836) was a painter of harbors.", "He never worked on clocks.", "A picture hangs in Oskarn."),
)  # fmt: skip
PEOPLE = [CLOCKMAKER, PAINTER]


class TestChains:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("many", [True, False])
    def test_the_first_chain_ends_at_the_sentence_of_a_free_answer(self, method, many):
        documents = [*OTHERS[: 30 if many else 3], FERRY, COMPANY]
        (result,) = scripted().run([Request(question=QUESTION, method=method, settings=FREE)], documents)
        assert result.answer == "Tobias Rook"
        if "company" in {source.id for source in result.evidence.sources if source.read or source.votes}:
            require_the_answer_at_the_end(result)
            assert result.evidence.chains[0].steps[-1].answer == (0, 11)

    @pytest.mark.parametrize("method", METHODS)
    def test_the_first_chain_ends_at_the_sentence_that_a_span_is_taken_from(self, method):
        settings = ("reading=span",)
        for question in (QUESTION, "When was the Marigold Tern built?", "How many boats has Brackwater Ferries?"):
            request = Request(question=question, method=method, settings=settings, min_confidence=0.0)
            (result,) = scripted().run([request], [*OTHERS[:3], FERRY, COMPANY])
            assert result.answer
            require_the_answer_at_the_end(result)

    def test_a_step_tells_which_step_led_to_it_and_by_which_name(self):
        result = scripted().ask(QUESTION, [FERRY, COMPANY, *OTHERS], settings=FREE)
        first, last = result.evidence.chains[0].steps
        assert (first.sentence, first.after, first.link) == (FERRY.sentences[1], 0, "")
        assert (last.sentence, last.after, last.link) == (COMPANY.sentences[1], 1, "Brackwater Ferries")

    def test_a_step_that_leads_nowhere_is_left_out(self):
        tower = Document("tower", "Skarra Light", ("Skarra Light is built of Orrin stone.",))
        ship = Document("ship", "Lady Addle", ("The Lady Addle had a bell from the Orrin Bell Foundry.",))
        foundry = Document("foundry", "Orrin Bell Foundry", ("It was founded by Matthias Garrow.",))
        question = "Who founded the foundry that cast the bell of the Lady Addle?"
        engine = scripted(["Matthias Garrow"])
        result = engine.ask(question, [ship, tower, foundry], method="rag", settings=FREE)
        steps = result.evidence.chains[0].steps
        assert steps[-1].sentence == foundry.text
        assert all(step.after == 0 or steps[step.after - 1] for step in steps)
        led = {step.after for step in steps}
        assert all(number in led for number, _ in enumerate(steps[:-1], 1))
        assert tower.text not in [step.sentence for step in steps]

    def test_both_of_two_that_are_compared_are_shown_with_what_decides(self):
        settings = ("reading=span",)
        result = scripted().ask(f"Who is older, {PAINTER.title} or {CLOCKMAKER.title}?", PEOPLE, settings=settings)
        assert result.answer == PAINTER.title
        steps = result.evidence.chains[0].steps
        assert [step.sentence for step in steps] == [CLOCKMAKER.sentences[0], PAINTER.sentences[0]]
        assert steps[-1].answer == (0, len(PAINTER.title))

    @pytest.mark.parametrize(
        ("question", "answer", "sentences"),
        [
            ("Was Isolde Tarrant born in Tessel?", "yes", ["She was born in Tessel."]),
            ("Did Edmund Rask work on clocks?", "no", ["He never worked on clocks."]),
        ],
    )
    def test_yes_and_no_rest_on_the_sentence_that_says_most_of_the_question(self, question, answer, sentences):
        result = scripted().ask(question, PEOPLE, settings=("reading=span",), min_confidence=0.0)
        assert result.answer == answer
        assert [step.sentence for step in result.evidence.chains[0].steps] == sentences

    def test_a_passage_leads_on_by_the_sentence_that_names_the_answers_passage(self):
        works = Document(
            "works", "Vellmark Works",
            ("The Vellmark Works make clocks.", "They were founded by Isolde Tarrant.", "Their best work is the Harrow Clock."),
        )  # fmt: skip
        # The search led from this passage by another sentence.
        units = (
            TextUnit(works.title, works.sentences[2], works.id, 2),
            TextUnit(CLOCKMAKER.title, CLOCKMAKER.sentences[0], CLOCKMAKER.id, 0),
        )
        chain = Chain(units, (0.0, 0.0), 0.0, finished=True)
        evidence = Evidence(
            "documents", (works.text, CLOCKMAKER.text), (works.id, CLOCKMAKER.id), derivation=ChainSearch((chain,))
        )
        answer = Answer("Where was the founder of the Vellmark Works born?", "Tessel", "hops", evidence)
        first = answer_findings(answer, {works.id: works, CLOCKMAKER.id: CLOCKMAKER}).chains[0]
        assert [step.sentence for step in first.steps] == [works.sentences[1], CLOCKMAKER.sentences[1]]
        assert [step.after for step in first.steps] == [0, 1]

    @pytest.mark.parametrize(
        ("answer", "sentence"),
        [
            ("Ada", "Adale met Ada."),
            ("STRASSE", "Die Straße heißt Strasse."),
            ("北京", "中国的首都是北京。"),
            ("Tobias  Rook", "Tobias\u00a0Rook was there."),
            ("the ferry.", "A lamp of ferry light."),
        ],
    )
    def test_a_free_answer_is_found_as_whole_words(self, answer, sentence):
        documents = [Document("1", "Title", ("Nothing of the kind.", sentence))]
        result = scripted([answer]).ask("What is it?", documents, method="rag", settings=FREE)
        last = result.evidence.chains[0].steps[-1]
        assert last.sentence == sentence
        if last.answer is not None:
            found = last.sentence[slice(*last.answer)]
            assert found.casefold().split() == result.answer.casefold().split()
            assert last.answer != (0, 3) or answer != "Ada"

    @pytest.mark.models
    def test_the_first_chain_ends_at_the_answer_of_each_example(self, tiny_models):  # noqa: ARG002 (they must be pulled)
        engine = pytrace.load(threads=1)
        corpus = pytrace.Corpus.read(EXAMPLES / "docs")
        lines = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines[::3]]
        requests = [
            Request(question=row["question"], method=method, min_confidence=0.0) for method in METHODS for row in rows
        ]
        found = 0
        for request, result in zip(requests, engine.run(requests, corpus), strict=True):
            assert result.question == request.question
            read = [text.casefold() for source in result.evidence.sources for text in (source.title, source.text)]
            if any(result.answer.casefold() in text for text in read) and result.answer.casefold() not in ("yes", "no"):
                require_the_answer_at_the_end(result)
                found += 1
        assert found >= 0.9 * len(requests)
        engine.close()


class TestCorpora:
    def folders(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        return tmp_path

    def test_the_temporary_index_goes_with_the_corpus(self, monkeypatch, tmp_path):
        folder = self.folders(monkeypatch, tmp_path)
        corpus = pytrace.Corpus([FERRY, COMPANY])
        assert list(folder.iterdir()) == []
        engine = scripted()
        first = engine.search(QUESTION, corpus)
        (directory,) = folder.iterdir()
        assert (directory / "index" / "passages.json").exists()
        assert engine.search(QUESTION, corpus).evidence == first.evidence
        assert list(folder.iterdir()) == [directory], "it is built once"
        del corpus
        gc.collect()
        assert list(folder.iterdir()) == []
        assert first.evidence.sources[0].text, "a result outlives the corpus"

    def test_a_closed_corpus_is_indexed_again(self, monkeypatch, tmp_path):
        folder = self.folders(monkeypatch, tmp_path)
        engine, corpus = scripted(), pytrace.Corpus([FERRY, COMPANY])
        first = engine.search(QUESTION, corpus)
        corpus.close()
        assert list(folder.iterdir()) == []
        assert engine.search(QUESTION, corpus).evidence == first.evidence
        corpus.close()

    def test_nothing_is_left_of_what_the_road_opens_itself(self, monkeypatch, tmp_path):
        folder = self.folders(monkeypatch, tmp_path / "temporary")
        folder.mkdir()
        engine = scripted()
        closed: list[object] = []

        def close(corpus: object) -> None:
            closed.append(corpus)

        monkeypatch.setattr(corpora.IndexedCorpus, "close", close)
        pytrace.Corpus.build(tmp_path / "index", [FERRY, COMPANY], engine)
        assert engine.ask(QUESTION, tmp_path / "index", settings=FREE).answer == "Tobias Rook"
        assert len(closed) == 1
        engine.ask(QUESTION, [FERRY, COMPANY], settings=FREE)
        engine.run([Request(question=QUESTION, settings=FREE, documents=(FERRY, COMPANY))])
        assert list(folder.iterdir()) == []
        kept = pytrace.Corpus.open(tmp_path / "index")
        engine.ask(QUESTION, kept, settings=FREE)
        assert len(closed) == 1, "a corpus of the caller stays open"

    @pytest.mark.parametrize("method", METHODS)
    def test_one_document_twice_and_empty_texts_break_nothing(self, method):
        odd = [
            Document("same", "Nothing", ()),
            Document("same", "Marigold Tern", FERRY.sentences),
            Document("same", "Marigold Tern", FERRY.sentences),
            Document("empty", "", ("",)),
            Document("untitled", "", (" ", "It has no name.")),
            COMPANY,
        ]
        for documents, corpus in ((None, odd), (tuple(odd), None), (None, [*odd, *OTHERS])):
            request = Request(question=QUESTION, method=method, settings=FREE, documents=documents)
            (result,) = scripted().run([request], corpus)
            assert result.answer == "Tobias Rook"
            ids = [source.id for source in result.evidence.sources]
            assert len(ids) == len(set(ids))
            require_the_answer_at_the_end(result)

    def test_what_two_documents_say_is_read_once(self):
        twins = [Document("twin", FERRY.title, tuple(text.replace(" ", "  ") for text in FERRY.sentences)), FERRY]
        (result,) = scripted().run([Request(question=QUESTION, settings=FREE)], [*twins, COMPANY, *OTHERS])
        read = [source for source in result.evidence.sources if source.read]
        assert [source.title for source in read].count("Marigold Tern") == 1
        assert {step.sentence for step in result.evidence.chains[0].steps} >= {COMPANY.sentences[1]}
        require_the_answer_at_the_end(result)

    @pytest.mark.parametrize("given", ["documents", "corpus"])
    def test_two_documents_of_one_id_are_refused(self, given):
        documents = (FERRY, Document(FERRY.id, "Marigold Tern", ("It is another.",)))
        request = Request(question=QUESTION, settings=FREE, documents=documents if given == "documents" else None)
        with pytest.raises(
            InputError, match="two documents have the id 'ferry', but not the same text; give each an id of its own"
        ):
            scripted().run([request], documents if given == "corpus" else None)

    def test_a_document_without_an_id_is_refused_and_nothing_is_left(self, monkeypatch, tmp_path):
        folder = self.folders(monkeypatch, tmp_path)
        with pytest.raises(InputError, match="document '' has no id, and cannot be found again; leave it out"):
            scripted().search(QUESTION, [Document("", "", ("It has no id.",))])
        assert list(folder.iterdir()) == []

    def test_a_search_of_a_corpus_in_memory_finds_what_one_of_an_index_finds(self, tmp_path):
        engine = scripted()
        indexed = pytrace.Corpus.build(tmp_path / "index", [*OTHERS, FERRY, COMPANY], engine)
        memory = pytrace.Corpus([*OTHERS, FERRY, COMPANY])
        for retriever in ("dense", "bm25", "rrf", "given", "together"):
            assert memory.find([QUESTION], engine, retriever, 5) == indexed.find([QUESTION], engine, retriever, 5)
        assert memory.search([QUESTION], engine) == indexed.search([QUESTION], engine)
        indexed.close()
