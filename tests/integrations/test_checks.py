from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from pytrace import Corpus, Document
from pytrace.errors import InputError
from pytrace.integrations.checks import assert_evidence, assert_faithful, assert_supported, documents_of
from pytrace.records import Question

CONTEXTS = [
    "The ferry Marigold Tern was built in 1931 by Holm & Sons.",
    "Holm & Sons was founded by Dagny Holm in 1888. The yard stands in Quillhaven.",
]


def test_an_answer_of_the_contexts_passes():
    assert_faithful("The Marigold Tern was built by Holm & Sons in 1931. Dagny Holm founded Holm & Sons.", CONTEXTS)
    assert_supported("The yard stands in Quillhaven.", CONTEXTS)
    assert_supported("The yard stands in Quillhaven.", CONTEXTS[1])


def test_a_failure_names_each_claim_and_the_nearest_evidence():
    answer = "The Marigold Tern was built by Holm & Sons in 1941. Dagny Holm founded Holm & Sons. It sank off Peru."
    with pytest.raises(AssertionError) as failure:
        assert_faithful(answer, CONTEXTS)
    message = str(failure.value)
    assert message.startswith("1 of 3 claims of the answer is supported, a score of 0.33 (at least 1.00 is wanted)")
    assert "The Marigold Tern was built by Holm & Sons in 1941." in message
    assert "the evidence has another number" in message
    assert "nearest: The ferry Marigold Tern was built in 1931 by Holm & Sons. (context 0)" in message
    assert "): It sank off Peru.\n      the evidence lacks sank, off, Peru" in message
    assert "Dagny Holm founded" not in message
    assert_faithful(answer, CONTEXTS, min_score=0.3)


def test_a_claim_is_contradicted_or_not_there():
    with pytest.raises(AssertionError, match=r"do not support the claim:\n  contradicted .*not founded"):
        assert_supported("Holm & Sons was not founded by Dagny Holm in 1888.", CONTEXTS)
    with pytest.raises(AssertionError, match="not there"):
        assert_supported("Penguins swim.", CONTEXTS)


def test_an_answer_that_claims_nothing_fails():
    with pytest.raises(AssertionError, match="claims nothing"):
        assert_faithful("It is.", CONTEXTS)


def test_wrong_arguments_are_told_apart_from_failures():
    for contexts in ([], [""], ""):
        with pytest.raises(InputError, match="no context"):
            assert_faithful("Geese fly.", contexts)
    with pytest.raises(InputError, match="context 1 is of type int"):
        documents_of(["a text", 5])
    with pytest.raises(InputError, match="min_score is 2"):
        assert_faithful("Geese fly.", CONTEXTS, min_score=2)
    with pytest.raises(InputError, match="nothing is expected"):
        assert_evidence("Who?", CONTEXTS)
    with pytest.raises(InputError, match="recall_at is 0"):
        assert_evidence("Who?", CONTEXTS, expected=["a"], recall_at=0)
    with pytest.raises(InputError, match="min_recall is nan"):
        assert_evidence("Who?", CONTEXTS, expected=["a"], min_recall=float("nan"))


def test_contexts_may_be_documents_or_a_folder(tmp_path):
    (tmp_path / "ferry.md").write_text("# Marigold Tern\n\nThe ferry was built in 1931.\n", "utf-8")
    assert_supported("The Marigold Tern was built in 1931.", tmp_path)
    assert_supported("The Marigold Tern was built in 1931.", Document("1", "Marigold Tern", ("It was built in 1931.",)))


@pytest.mark.models
def test_evidence_is_looked_for_among_the_first_documents(engine, tmp_path):
    documents = [
        Document("ship", "Marigold Tern", ("The Marigold Tern was built by Holm & Sons.",)),
        Document("yard", "Holm & Sons", ("Holm & Sons was founded by Dagny Holm.",)),
        *(Document(f"other{k}", f"Village {k}", (f"Village {k} has {k} wells.",)) for k in range(30)),
    ]
    question = "Who founded the yard that built the Marigold Tern?"
    corpus = Corpus.build(tmp_path / "index", documents, engine)
    corpus.close()
    assert_evidence(question, tmp_path / "index", expected=["ship", "Holm & Sons"], recall_at=2, engine=engine)
    known = Question("1", question, ("Dagny Holm",), supporting_documents=("ship", "yard"))
    assert_evidence(known, tmp_path / "index", recall_at=5, engine=engine)
    assert_evidence(known, documents, recall_at=5, engine=engine)
    with pytest.raises(AssertionError) as failure:
        assert_evidence(known, tmp_path / "index", expected=["ship", "other29"], recall_at=2, engine=engine)
    message = str(failure.value)
    assert message.startswith("recall at 2 is 0.50 (at least 1.00 is wanted) for 'Who founded")
    assert "missing: other29" in message
    assert "1. " in message
    assert_evidence(known, tmp_path / "index", expected=["ship", "other29"], recall_at=2, min_recall=0.5, engine=engine)


def test_the_assertions_are_fixtures_of_pytest(tmp_path):
    (tmp_path / "test_answers.py").write_text(
        textwrap.dedent(
            """
            CONTEXTS = ["Ada Foah is a town in Ghana."]

            def test_right(assert_faithful, assert_supported, assert_evidence):
                assert_faithful("Ada Foah is in Ghana.", CONTEXTS)
                assert_supported("Ada Foah is a town.", CONTEXTS)
                assert callable(assert_evidence)

            def test_wrong(assert_faithful):
                assert_faithful("Ada Foah is in Togo.", CONTEXTS)
            """
        ),
        "utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "0 of 1 claims of the answer are supported" in done.stdout
    assert "pytrace/integrations/checks.py" not in done.stdout, "the traceback should end in the user's test"


def test_the_plug_in_loads_nothing_until_it_is_used():
    script = "import sys, pytrace.integrations.pytest_plugin; print('pytrace.certify' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
