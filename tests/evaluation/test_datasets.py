"""Questions of every format: gold answers, documents and facts that point to the right ones, and bad rows."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.documents import read_documents
from pytrace.errors import DataError, InputError
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.data.question_report import QuestionReport
from pytrace.evaluation.scores.metrics import exact_match
from pytrace.reader.claims import LABELS
from pytrace.records import Question, Triple

HOTPOT: dict[str, Any] = {
    "_id": "q1",
    "question": "In which region is  Fort Kongenstein?",
    "answer": "Greater Accra",
    "type": "bridge",
    "context": [
        ["Fort Kongenstein", ["", " It lies in Ada Foah.", " It is old."]],
        ["Ada Foah", ["Ada Foah is in Greater Accra."]],
        ["Accra", ["Accra is the capital."]],
    ],
    "supporting_facts": [["Fort Kongenstein", 1], ["Ada Foah", 0]],
}
MUSIQUE: dict[str, Any] = {
    "id": "2hop__1_2",
    "question": "Where?",
    "answer": "Ghana",
    "answer_aliases": ["Republic of Ghana", "Ghana"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "A", "paragraph_text": "One. Two.", "is_supporting": False},
        {"idx": 1, "title": "A", "paragraph_text": "Three.", "is_supporting": True},
    ],
}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def questions(path: Path, **options: Any) -> list[Question]:
    return list(read_questions(path, **options))


def one(tmp_path: Path, row: object, **options: Any) -> Question:
    [question] = questions(write(tmp_path / "q.jsonl", row), **options)
    return question


class TestFormats:
    def test_hotpotqa(self, tmp_path: Path) -> None:
        question = one(tmp_path, HOTPOT)
        fort, ada, _ = (document.id for document in question.documents)
        assert (question.id, question.kind, question.answers) == ("q1", "bridge", ("Greater Accra",))
        assert question.question == "In which region is Fort Kongenstein?"
        assert question.supporting_documents == (fort, ada)

    def test_a_fact_follows_its_sentence_when_an_empty_one_before_it_goes(self, tmp_path: Path) -> None:
        question = one(tmp_path, HOTPOT)
        document, index = question.supporting_facts[0]
        assert document == question.documents[0].id
        assert question.documents[0].sentences[index] == "It lies in Ada Foah."

    def test_hotpotqa_by_columns_reads_as_by_rows(self, tmp_path: Path) -> None:
        columns = {
            **HOTPOT,
            "context": {"title": [c[0] for c in HOTPOT["context"]], "sentences": [c[1] for c in HOTPOT["context"]]},
            "supporting_facts": {"title": ["Fort Kongenstein", "Ada Foah"], "sent_id": [1, 0]},
        }
        assert one(tmp_path, columns) == one(tmp_path, HOTPOT)

    def test_2wikimultihopqa_evidence_becomes_triples(self, tmp_path: Path) -> None:
        question = one(tmp_path, {**HOTPOT, "evidences": [["Ada Foah", "region", "Greater Accra"], ["X", "r", "Y"]]})
        assert question.triples == (
            Triple("Ada Foah", "region", "Greater Accra", document_id=question.documents[1].id),
            Triple("X", "r", "Y"),
        )

    def test_musique_marks_paragraphs_even_of_one_title(self, tmp_path: Path) -> None:
        question = one(tmp_path, MUSIQUE)
        assert question.answers == ("Ghana", "Republic of Ghana")
        assert question.kind == "2hop"
        assert [document.sentences for document in question.documents] == [("One.", "Two."), ("Three.",)]
        assert question.supporting_documents == (question.documents[1].id,)

    def test_unanswerable_musique_questions_are_left_out_and_named(self, tmp_path: Path) -> None:
        report = QuestionReport()
        path = write(tmp_path / "q.jsonl", {**MUSIQUE, "answerable": False}, {**MUSIQUE, "id": "x"})
        assert [q.id for q in read_questions(path, report=report)] == ["x"]
        assert (report.questions, report.left_out) == (1, 1)
        assert report.notes == [f"{path}:1: left out: it is marked as not answerable"]

    def test_our_own_rows(self, tmp_path: Path) -> None:
        row = {
            "question": "Where?",
            "answers": ["Ghana"],
            "documents": [
                {"id": "d1", "title": "A", "sentences": ["One.", "Two."], "supporting": True},
                {"title": "B", "text": "Three."},
            ],
            "supporting_facts": [["d1", 1], ["B", 0]],
            "triples": [["A", "in", "B"]],
        }
        question = one(tmp_path, row)
        assert question.documents[0].id == "d1"
        assert question.supporting_documents == ("d1", question.documents[1].id)
        assert question.supporting_facts == (("d1", 1), (question.documents[1].id, 0))
        assert question.triples == (Triple("A", "in", "B", document_id="d1"),)
        assert question.id.startswith("where-")

    def test_2wikimultihopqa_of_tables_reads_as_the_published_rows(self, tmp_path: Path) -> None:
        published = {**HOTPOT, "evidences": [["Ada Foah", "region", "Greater Accra"]]}
        table = {
            **HOTPOT,
            "context": [{"title": title, "content": sentences} for title, sentences in HOTPOT["context"]],
            "supporting_facts": [{"title": title, "sent_id": place} for title, place in HOTPOT["supporting_facts"]],
            "evidences": [{"fact": "Ada Foah", "relation": "region", "entity": "Greater Accra"}],
        }
        columns = {**table, "evidences": {"fact": ["Ada Foah"], "relation": ["region"], "entity": ["Greater Accra"]}}
        assert one(tmp_path, table) == one(tmp_path, columns) == one(tmp_path, published)
        assert one(tmp_path, table).triples[0].relation == "region"

    def test_triviaqa_raw_with_its_folder_of_evidence(self, tmp_path: Path) -> None:
        qa, wikipedia, web = (tmp_path / name for name in ("qa", "evidence/wikipedia", "evidence/web"))
        for folder in (qa, wikipedia, web):
            folder.mkdir(parents=True)
        (wikipedia / "Ada_Foah.txt").write_text("Ada Foah lies in Ghana.")
        (web / "1.txt").write_text("Ghana is a country.")
        item = {
            "Answer": {"Aliases": ["Republic of Ghana", "Ghana"], "Type": "WikipediaEntity", "Value": "Ghana"},
            "EntityPages": [{"DocSource": "TagMe", "Filename": "Ada_Foah.txt", "Title": "Ada Foah"}],
            "Question": "Where is Ada Foah?",
            "QuestionId": "tc_1",
            "SearchResults": [
                {"Filename": "1.txt", "Rank": 0, "Title": ""},
                {"Filename": "not-there.txt", "Rank": 1, "Title": "Lost"},
            ],
        }
        path = qa / "wikipedia-dev.json"
        path.write_text(json.dumps({"Data": [item, {**item, "QuestionId": "tc_2"}], "Domain": "Wikipedia"}, indent=1))
        question, second = questions(path)
        assert (question.id, second.id, question.question) == ("tc_1", "tc_2", "Where is Ada Foah?")
        assert question.answers == ("Ghana", "Republic of Ghana")
        assert [(one.title, one.sentences) for one in question.documents] == [
            ("Ada Foah", ("Ada Foah lies in Ghana.",)),
            ("1.txt", ("Ghana is a country.",)),
        ]

    def test_triviaqa_of_tables_holds_its_texts(self, tmp_path: Path) -> None:
        row = {
            "question": "Where is Ada Foah?",
            "question_id": "tc_1",
            "entity_pages": {"filename": ["a.txt"], "title": ["Ada Foah"], "wiki_context": ["Ada Foah lies in Ghana."]},
            "search_results": {"filename": [], "title": [], "search_context": []},
            "answer": {"value": "Ghana", "aliases": ["Republic of Ghana"], "normalized_value": "ghana"},
        }
        question = one(tmp_path, row)
        assert (question.id, question.answers) == ("tc_1", ("Ghana", "Republic of Ghana"))
        assert [document.title for document in question.documents] == ["Ada Foah"]

    def test_webquestions_nq_open_and_flashrag(self, tmp_path: Path) -> None:
        target = r'(list (description "Padmé \"P.\" Amidala") (description Abduction) (description 29/10/1990))'
        raw = {"url": "http://a.example", "targetValue": target, "utterance": "what?"}
        assert one(tmp_path, raw).answers == ('Padmé "P." Amidala', "Abduction", "29/10/1990")
        table = {"url": "http://a.example", "question": "what?", "answers": ["Abduction"]}
        assert one(tmp_path, table, format="webquestions").answers == ("Abduction",)
        assert one(tmp_path, {"question": "who?", "answer": ["A", "B"]}, format="nq-open").answers == ("A", "B")
        metadata = {
            "type": "bridge",
            "level": "hard",
            "context": {
                "title": [one[0] for one in HOTPOT["context"]],
                "content": [one[1] for one in HOTPOT["context"]],
            },
            "supporting_facts": {"title": ["Ada Foah"], "sent_id": [0]},
        }
        row = {"id": "dev_0", "question": "Where?", "golden_answers": ["Greater Accra"], "metadata": metadata}
        question = one(tmp_path, row)
        assert (question.id, question.kind, question.answers) == ("dev_0", "bridge", ("Greater Accra",))
        assert question.supporting_documents == (question.documents[1].id,)
        assert one(tmp_path, {"question": "Where?", "golden_answers": ["Ghana"]}).documents == ()

    def test_questions_over_knowledge_graphs_and_their_gold_paths(self, tmp_path: Path) -> None:
        path = [["Ada Foah", "country", "Ghana"], ["Ghana", "capital", "Accra"]]
        grail = {
            "qid": 2102902009000,
            "question": "which capital?",
            "answer": [
                {"answer_type": "Entity", "answer_argument": "m.0", "entity_name": "Accra"},
                {"answer_type": "Value", "answer_argument": "1877", "entity_name": ""},
            ],
            "level": "zero-shot",
        }
        question = one(tmp_path, {**grail, "ground_truth_paths": [path]})
        assert (question.id, question.kind, question.answers) == ("2102902009000", "zero-shot", ("Accra", "1877"))
        assert [triple.relation for triple in question.triples] == ["country", "capital"]
        assert one(tmp_path, {**grail, "answer": ["accra"]}).answers == ("accra",)  # GraphQuestions
        raw = {
            "ID": "WebQTrn-1",
            "question": "which capital?",
            "compositionality_type": "composition",
            "answers": [
                {"answer": "Accra", "answer_id": "m.0", "aliases": ["Akkra"]},
                {"answer": None, "aliases": None},
            ],
        }
        table = {**raw, "answers": {"answer": ["Accra"], "answer_id": ["m.0"], "aliases": [["Akkra"]]}}
        for row in (raw, table):
            question = one(tmp_path, row)
            assert (question.id, question.kind, question.answers) == ("WebQTrn-1", "composition", ("Accra", "Akkra"))
        rows = {"id": "x", "question": "which?", "answers": ["Accra"], "gold_paths": [path, path[:1]]}
        assert len(one(tmp_path, rows).triples) == 2

    @pytest.mark.parametrize(
        ("row", "says"),
        [
            ({"Question": "?", "Answer": "Ghana"}, "`Answer` must be an object"),
            ({"question": "Where?", "question_id": "1", "answer": {"value": "<unk>", "aliases": []}}, "no gold answer"),
            ({"utterance": "what?", "targetValue": "Ghana"}, "`targetValue` is 'Ghana'"),
            ({"utterance": "what?", "targetValue": 5}, "`targetValue` must be a string"),
            ({"qid": 1, "question": "?", "answer": [5]}, "`answer[0]` must be a string, or an object"),
            ({"qid": 1, "question": "?", "answer": "Ghana"}, "`answer` must be a list"),
            ({"ID": "1", "question": "?", "compositionality_type": "", "answers": [None]}, "`answers[0]` must be"),
            ({"question": "?", "golden_answers": ["a"], "metadata": []}, "`metadata` must be an object"),
            ({"question": "Where?", "answer": "a", "gold_paths": [["a"]]}, "`gold_paths[0][0]` must be"),
            (
                {
                    "question": "Where?",
                    "answer": {"value": "a", "aliases": []},
                    "entity_pages": [{"title": "A", "filename": "../../secret"}],
                },
                "lies outside",
            ),
        ],
    )
    def test_a_bad_row_of_a_data_set_is_told(self, tmp_path: Path, row: dict[str, Any], says: str) -> None:
        with pytest.raises(DataError) as caught:
            one(tmp_path, row)
        assert says in str(caught.value)
        assert "q.jsonl" in str(caught.value)

    def test_questions_without_documents_are_fine(self, tmp_path: Path) -> None:
        assert one(tmp_path, {"question": "Where?", "answer": "Ghana"}).documents == ()

    def test_lists_read_as_lines_do(self, tmp_path: Path) -> None:
        listed = tmp_path / "q.json"
        listed.write_text(json.dumps([HOTPOT, {**HOTPOT, "_id": "q2"}]))
        assert [q.id for q in read_questions(listed)] == ["q1", "q2"]

    def test_a_named_format_is_held_to(self, tmp_path: Path) -> None:
        assert one(tmp_path, HOTPOT, format="hotpotqa").id == "q1"
        with pytest.raises(DataError, match=r"q.jsonl:1: no `paragraphs`, which a musique row must have"):
            one(tmp_path, HOTPOT, format="musique")
        with pytest.raises(DataError, match=r"q.jsonl:1: no `evidences`"):
            one(tmp_path, HOTPOT, format="2wikimultihopqa")
        with pytest.raises(InputError, match="format 'squad' is unknown"):
            one(tmp_path, HOTPOT, format="squad")

    def test_limit_reads_no_further(self, tmp_path: Path) -> None:
        path = write(tmp_path / "q.jsonl", HOTPOT, {**HOTPOT, "_id": "q2"})
        with path.open("a") as out:
            out.write("broken\n")
        assert [q.id for q in read_questions(path, limit=2)] == ["q1", "q2"]
        with pytest.raises(InputError, match="limit is 0"):
            read_questions(path, limit=0)


class TestIdentity:
    def test_a_documents_id_is_the_same_in_every_question_and_reader(self, tmp_path: Path) -> None:
        path = write(tmp_path / "q.jsonl", HOTPOT, {**HOTPOT, "_id": "q2", "context": HOTPOT["context"][1:]})
        first, second = questions(path)
        assert [d.id for d in first.documents[1:]] == [d.id for d in second.documents]
        assert {d.id for d in read_documents(path)} == {d.id for d in first.documents}

    def test_one_title_with_other_words_is_another_document(self, tmp_path: Path) -> None:
        context = [["Once", ["One.", "Two."]], ["Once", ["Three."]], ["Once", ["Four."]]]
        report = QuestionReport()
        question = one(tmp_path, {**HOTPOT, "context": context, "supporting_facts": [["Once", 1]]}, report=report)
        ids = [d.id for d in question.documents]
        assert len(set(ids)) == 3
        assert question.supporting_documents == (ids[0],), "only one of them has a sentence 1"
        assert report.ambiguous_facts == 1

    def test_one_title_with_the_fact_in_several_documents_counts_all(self, tmp_path: Path) -> None:
        context = [["Once", ["One."]], ["Once", ["Three."]]]
        question = one(tmp_path, {**HOTPOT, "context": context, "supporting_facts": [["Once", 0]]})
        assert question.supporting_documents == tuple(d.id for d in question.documents)

    def test_a_paragraph_twice_in_a_question_is_given_once(self, tmp_path: Path) -> None:
        report = QuestionReport()
        question = one(tmp_path, {**HOTPOT, "context": HOTPOT["context"] * 2}, report=report)
        assert len(question.documents) == 3
        assert report.repeated_documents == 3

    def test_empty_paragraphs_are_left_out_and_named(self, tmp_path: Path) -> None:
        report = QuestionReport()
        context = [*HOTPOT["context"], ["Void", [" "]]]
        question = one(tmp_path, {**HOTPOT, "context": context}, report=report)
        assert len(question.documents) == 3
        assert (report.empty_documents, "'Void'" in report.notes[0]) == (1, True)

    def test_facts_without_a_sentence_keep_their_document_and_are_reported(self, tmp_path: Path) -> None:
        facts = [["Accra", 7], ["Nowhere", 0], ["Fort Kongenstein", 0], ["Ada Foah", -1], ["ADA &AMP; FOAH", 0]]
        report = QuestionReport()
        question = one(tmp_path, {**HOTPOT, "supporting_facts": facts}, report=report)
        titles = {d.id: d.title for d in question.documents}
        assert [titles[i] for i in question.supporting_documents] == ["Accra", "Fort Kongenstein", "Ada Foah"]
        assert question.supporting_facts == ()
        assert report.unresolved_facts == 5

    def test_titles_that_differ_in_escapes_and_case_are_found(self, tmp_path: Path) -> None:
        row = {**HOTPOT, "context": [["Fish & Chips", ["One."]]], "supporting_facts": [["Fish &amp; chips", 0]]}
        assert len(one(tmp_path, row).supporting_facts) == 1

    def test_one_id_for_two_questions_names_both_lines(self, tmp_path: Path) -> None:
        path = write(tmp_path / "q.jsonl", HOTPOT, {**HOTPOT, "question": "Other?"})
        with pytest.raises(DataError, match=r"q.jsonl:2: question id 'q1' also stands at .*q.jsonl:1"):
            questions(path)

    def test_a_repeated_question_is_left_out_and_named(self, tmp_path: Path) -> None:
        report = QuestionReport()
        assert len(questions(write(tmp_path / "q.jsonl", HOTPOT, HOTPOT), report=report)) == 1
        assert report.left_out == 1

    def test_one_given_document_id_for_other_words_is_refused(self, tmp_path: Path) -> None:
        rows = [
            {"question": f"{i}?", "answer": "x", "documents": [{"id": "d", "title": "T", "text": str(i)}]} for i in "ab"
        ]
        with pytest.raises(DataError, match=r"q.jsonl:2: document id 'd' .* q.jsonl:1|q.jsonl:2: document id 'd'"):
            questions(write(tmp_path / "q.jsonl", *rows))


PATHS = "who is the_a 's  c ?\tnew_c(b/new_c/)\ta#r#m#s#new_c#<end>#new_c\r\n\nhow ?\tx/y(x/y/)\ta#r#x/y#<end>#x/y\n"
CLAIM = {"id": 7, "claim": "Ada Foah  lies in Ghana.", "label": "SUPPORTS", "evidence": [[[1, None, None, None]]]}


class TestPathQuestion:
    @pytest.mark.parametrize("name", ["PQ.txt", "PQ.tsv", "PQ.jsonl"])
    @pytest.mark.parametrize("options", [{}, {"format": "pathquestion"}], ids=str)
    def test_rows_are_found_by_their_columns(self, tmp_path: Path, name: str, options: dict[str, Any]) -> None:
        path = tmp_path / name
        path.write_bytes(b"\xef\xbb\xbf" + PATHS.encode())
        first, second = questions(path, **options)
        assert first == Question(
            "PQ:1",
            "who is the a's c?",
            ("new c", "b"),
            triples=(Triple("a", "r", "m"), Triple("m", "s", "new_c")),
            kind="2hop",
        )
        assert (second.id, second.kind, second.answers) == ("PQ:3", "1hop", ("x/y", "x", "y"))
        assert questions(path, limit=1) == [first]

    def test_a_packed_file_is_unpacked(self, tmp_path: Path) -> None:
        path = tmp_path / "PQ.txt.gz"
        path.write_bytes(gzip.compress(PATHS.encode()))
        assert len(questions(path)) == 2
        path.write_bytes(gzip.compress(PATHS.encode())[:-12])
        with pytest.raises(DataError, match="broken gzip"):
            questions(path)

    @pytest.mark.parametrize(
        ("row", "says"),
        [
            (b"who ?\tb(b/)", "2 columns where question, answers and path are wanted"),
            (b"who ?\tb(b/)\ta#r#b#<end>#c", "the path 'a#r#b#<end>#c' is not of the form"),
            (b"who ?\tc(b/)\ta#r#b#<end>#b", "the answers 'c(b/)'"),
            (b"who ?\t\xff(b/)\ta#r#b#<end>#b", "byte 7 of the line is not UTF-8"),
        ],
    )
    def test_a_bad_row_is_told_with_its_line(self, tmp_path: Path, row: bytes, says: str) -> None:
        path = tmp_path / "PQ.txt"
        path.write_bytes(b"who ?\tb(b/)\ta#r#b#<end>#b\n" + row + b"\n")
        report = QuestionReport()
        with pytest.raises(DataError, match=rf"^{re.escape(str(path))}:2: ") as caught:
            questions(path, report=report)
        assert says in str(caught.value)
        assert report.questions == 1

    def test_an_empty_file_and_json_are_no_rows(self, tmp_path: Path) -> None:
        (tmp_path / "PQ.txt").write_text("\n\n")
        with pytest.raises(DataError, match="holds no question"):
            questions(tmp_path / "PQ.txt", format="pathquestion")
        tabbed = tmp_path / "tabbed.jsonl"
        tabbed.write_text(json.dumps(HOTPOT, indent="\t").replace("\n", "") + "\n")
        assert len(questions(tabbed)) == 1


class TestClaims:
    def test_a_claim_is_a_question_whose_answer_is_its_label(self, tmp_path: Path) -> None:
        assert one(tmp_path, CLAIM) == Question("7", "Ada Foah lies in Ghana.", ("SUPPORTS",), kind="claim")
        assert one(tmp_path, CLAIM, format="fever").kind == "claim"

    @pytest.mark.parametrize("label", LABELS)
    def test_a_label_matches_itself_alone_as_answers_do(self, tmp_path: Path, label: str) -> None:
        question = one(tmp_path, {**CLAIM, "label": label})
        assert [exact_match(given, question.answers) for given in LABELS] == [float(given == label) for given in LABELS]

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"label": "TRUE"}, "the label 'TRUE' is none of SUPPORTS, REFUTES, NOT ENOUGH INFO"),
            ({"label": "supports"}, "the label 'supports' is none of"),
            ({"label": "x" * 900}, "is none of"),
            ({"label": None}, "`label` must be a string"),
            ({"label": ["SUPPORTS"]}, "`label` must be a string"),
            ({"label": ""}, "`label` is empty"),
            ({"claim": " "}, "`claim` is empty"),
            ({"claim": 5}, "`claim` must be a string, not 5"),
            ({"id": {}}, "`id` must be a string or a whole number"),
        ],
    )
    def test_a_bad_row_is_told_with_its_line(self, tmp_path: Path, change: dict[str, Any], says: str) -> None:
        path = write(tmp_path / "q.jsonl", {**CLAIM, "id": 1}, {**CLAIM, **change})
        with pytest.raises(DataError) as caught:
            questions(path)
        assert str(caught.value).startswith(f"{path}:2: ")
        assert says in str(caught.value)
        assert len(str(caught.value)) < len(str(path)) + 200

    def test_rows_without_a_label_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"q.jsonl:1: no `label`, which a fever row must have"):
            one(tmp_path, {"id": 1, "claim": "It rains."})

    def test_claims_without_ids_get_one_of_their_words(self, tmp_path: Path) -> None:
        rows = [{"claim": f"It rains {n}.", "label": "REFUTES"} for n in (1, 2)]
        assert len({question.id for question in questions(write(tmp_path / "q.jsonl", *rows))}) == 2


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"question": 5}, "`question` must be a string, not 5"),
            ({"question": "  "}, "`question` is empty"),
            ({"answer": None}, "no gold answer"),
            ({"answer": ""}, "no gold answer"),
            ({"answer": []}, "no gold answer"),
            ({"answer": 5}, "`answer` must be a string or a list of strings, not 5"),
            ({"answers": [5]}, "`answers[0]` must be a string"),
            ({"_id": {}}, "`_id` must be a string or a whole number"),
            ({"context": "x"}, "`context` must be a list"),
            ({"supporting_facts": "x"}, "`supporting_facts` must be a list"),
            ({"supporting_facts": [["T"]]}, "`supporting_facts[0]` must be a pair"),
            ({"supporting_facts": [["T", "0"]]}, "`supporting_facts[0]` must be a pair"),
            ({"supporting_facts": [["T", True]]}, "`supporting_facts[0]` must be a pair"),
            ({"supporting_facts": {"title": ["T"]}}, "`supporting_facts[0]` must be a pair"),
            ({"evidences": 5}, "`evidences` must be a list"),
            ({"evidences": [["a", "b"]]}, "`evidences[0]` must be [head, relation, tail]"),
            ({"evidences": [["a", "b", 5]]}, "`evidences[0][2]` must be a string"),
            ({"type": 5}, "`type` must be a string"),
        ],
    )
    def test_a_bad_row_is_told_with_its_line(self, tmp_path: Path, change: dict[str, Any], says: str) -> None:
        path = write(tmp_path / "q.jsonl", {**HOTPOT, "_id": "q0"}, {**HOTPOT, **change})
        with pytest.raises(DataError) as caught:
            questions(path)
        assert str(caught.value).startswith(f"{path}:2: ")
        assert says in str(caught.value)
        assert caught.value.exit_code == 2

    @pytest.mark.parametrize("row", [{}, {"title": "T", "text": "x"}, {"question": "?"}])
    def test_a_file_of_another_kind_is_told(self, tmp_path: Path, row: object) -> None:
        with pytest.raises(DataError, match=r"q.jsonl:1: the format of this file is not known"):
            one(tmp_path, row)

    def test_empty_missing_and_wrong_files_are_told(self, tmp_path: Path) -> None:
        (tmp_path / "empty.jsonl").write_text("\n")
        for name, says in {"empty.jsonl": "holds no question", "no.jsonl": "no such file", ".": "is a folder"}.items():
            with pytest.raises(DataError, match=says):
                questions(tmp_path / name)

    @given(
        st.dictionaries(
            st.sampled_from([*HOTPOT, *MUSIQUE, "documents", "answers", "evidences"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["title", "text"]), inner),
                max_leaves=6,
            ),
        ),
        st.sampled_from([HOTPOT, MUSIQUE, {}]),
    )
    def test_any_row_gives_a_question_or_one_sentence(
        self, tmp_path_factory: pytest.TempPathFactory, change: dict[str, Any], base: dict[str, Any]
    ) -> None:
        path = write(tmp_path_factory.getbasetemp() / "any.jsonl", {**base, **change})
        found: list[Question] = []
        told = str(path)
        try:
            found = questions(path)
        except DataError as error:
            told = str(error)
        assert str(path) in told
        for question in found:
            ids = {document.id for document in question.documents}
            assert set(question.supporting_documents) <= ids
            sizes = {document.id: len(document.sentences) for document in question.documents}
            assert all(0 <= index < sizes[document] for document, index in question.supporting_facts)


@pytest.mark.data
class TestRealFiles:
    @pytest.mark.parametrize(
        ("name", "count", "documents"),
        [("advhotpot-dev", 108, 4), ("advhotpot10-dev", 108, 10), ("ircot-hotpotqa", 29, 5), ("2wiki-sample", 6, 10)],
    )
    def test_every_question_is_read_whole(self, shared_data: Path, name: str, count: int, documents: int) -> None:
        report = QuestionReport()
        found = questions(shared_data / "multihop" / f"{name}.jsonl", report=report)
        assert len(found) == len({q.id for q in found}) == count
        assert sum(len(q.documents) for q in found) == count * documents - report.repeated_documents
        assert report.repeated_documents <= 1
        assert (report.left_out, report.empty_documents, report.unresolved_facts) == (0, 0, 0)
        if name != "ircot-hotpotqa":  # its rows have no supporting facts
            assert all(len(q.supporting_documents) >= 2 and q.supporting_facts for q in found)

    def test_padding_a_question_keeps_its_documents_ids(self, shared_data: Path) -> None:
        four = questions(shared_data / "multihop" / "advhotpot-dev.jsonl")
        ten = {q.id: q for q in read_questions(shared_data / "multihop" / "advhotpot10-dev.jsonl")}
        for question in four:
            assert {d.id for d in question.documents} <= {d.id for d in ten[question.id].documents}
            assert set(question.supporting_documents) == set(ten[question.id].supporting_documents)

    def test_2wikimultihopqa_has_gold_triples(self, shared_data: Path) -> None:
        first, *rest = questions(shared_data / "multihop" / "2wiki-sample.jsonl")
        assert first.triples[0].text == "<Kistimaat; publication date; 2014>"
        assert all(q.triples and q.kind for q in rest)

    def test_every_row_of_pathquestion_has_a_path_and_an_answer_in_words(self, shared_data: Path) -> None:
        found = questions(shared_data / "pathquestion" / "PQ-2H.txt")
        assert len(found) == 1908
        assert {q.kind for q in found} == {"2hop"}
        assert all(q.triples[-1].tail.replace("_", " ") == q.answers[0] for q in found)

    def test_every_claim_has_its_label(self, shared_data: Path) -> None:
        found = questions(shared_data / "fever" / "claims-dev.jsonl")
        assert (len(found), {q.kind for q in found}) == (200, {"claim"})
        assert {answer for q in found for answer in q.answers} == set(LABELS)
