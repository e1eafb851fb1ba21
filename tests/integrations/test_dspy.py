from __future__ import annotations

from collections.abc import Iterator

import dspy
import pytest
from dspy import lm15

import pytrace
from pytrace.engine import Engine
from pytrace.errors import InputError
from pytrace.integrations.dspy import PytraceEngine, PytraceRetriever, _prompt
from tests.integrations.stories import QUESTION, require_no_language_model

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def reading_engine(tiny_models) -> Iterator[Engine]:  # noqa: ARG001 (they must be pulled)
    engine = pytrace.load(threads=1)
    yield engine
    engine.close()


def test_a_retriever_searches_an_index_across_hops(index, engine):
    found = PytraceRetriever(str(index), 3, engine=engine)(QUESTION)
    assert len(found.passages) == len(found.ids) == len(found.scores) == len(found.metadata) == 3
    assert "Lady Addle" in " ".join(found.passages[:2])
    assert "Matthias Garrow" in " ".join(found.passages[:2])
    assert found.chains[0][0]["steps"]
    assert found.metadata[0]["source"]
    assert len(PytraceRetriever(str(index), 3, engine=engine)(QUESTION, k=1).passages) == 1
    require_no_language_model(engine)


def test_a_program_is_answered_in_this_process(reading_engine):
    lm = dspy.LM("pytrace/tiny", engine=PytraceEngine(engine=reading_engine), cache=False, max_tokens=5)
    assert "Paris" in lm("The capital of France is")[0]

    class Shout(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=dspy.settings.lm(question)[0].upper())

    with dspy.context(lm=lm):
        assert "PARIS" in Shout()(question="The capital of France is").answer


def test_a_request_has_its_usage_its_end_and_its_events(reading_engine):
    engine = PytraceEngine(engine=reading_engine)
    request = lm15.Request(
        model="m", messages=(lm15.Message.user("The capital of France is"),), config=lm15.Config(max_tokens=3)
    )
    response = engine.complete(request)
    assert response.finish_reason == "length"
    assert response.usage.output_tokens == 3
    assert response.usage.input_tokens > 3
    assert response.model == "m"
    assert [type(event).__name__ for event in engine.stream(request)][-1].endswith("EndEvent")
    for wrong in (
        lm15.Request(
            model="m", messages=request.messages, tools=(lm15.FunctionTool("f", parameters={"type": "object"}),)
        ),
        lm15.Request(model="m", messages=request.messages, config=lm15.Config(response_format={"type": "json_object"})),
        lm15.Request(model="m", messages=(lm15.Message(role="user", parts=(lm15.ImagePart(url="http://x/y.png"),)),)),
    ):
        with pytest.raises(InputError):
            engine.complete(wrong)


def test_a_conversation_becomes_a_prompt_in_parts():
    say = lm15.Message
    messages = (say.user("q1"), say.assistant("a1"), say.user("q2"), say.user("more"))
    prompt = _prompt(lm15.Request(model="m", system="be short", messages=messages))
    assert (prompt.instruction, prompt.demonstrations, prompt.input) == ("be short", (("q1", "a1"),), "q2\n\nmore")
    begun = _prompt(lm15.Request(model="m", messages=(say.user("q"), say.assistant("so"))))
    assert (begun.demonstrations, begun.input, begun.answer_start) == ((), "q", "so")
    led = _prompt(lm15.Request(model="m", messages=(say.assistant("hello"), say.user("q"))))
    assert (led.instruction, led.input) == ("hello", "q")
    with pytest.raises(InputError, match="no message of a user"):
        _prompt(lm15.Request(model="m", messages=(say.assistant("hello"),)))
