"""Texts in other languages than English: detected, split, searched and scored as theirs, and stepped back from where rules end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytrace.certify.response_parsing import parse_response
from pytrace.documents import content_phrases, read_documents, split_sentences
from pytrace.documents.languages import detect_language
from pytrace.documents.mentions import holds
from pytrace.errors import InputError
from pytrace.evaluation.data.datasets import read_questions
from pytrace.evaluation.scores.metrics import exact_match, f1_score
from pytrace.methods.cot.rationales import parse_thought
from pytrace.methods.trace.ranker import TripleIndex
from pytrace.reader.answers import clean_answer
from pytrace.records import Document, TextUnit, Triple
from pytrace.retrieval import Bm25Retriever
from pytrace.triples.extraction import PhraseExtractor

SENTENCES = {
    "de": [
        "Am 3. Oktober 1990 kam Herr Dr. Weber z. B. nach Köln.",
        "Er wohnte u. a. bei Prof. K. Lang in der Hauptstr. 12.",
        "„Warum gerade dort?“, fragte ihn der Nachbar.",
        "Das Haus stammt aus dem 19. Jahrhundert.",
        "Es gehört heute der Fa. Brandt, d. h. der Familie Brandt.",
        "Ludwig II. ließ es im 18. und 19. Jahrhundert umbauen.",
        "Es misst ca. 1.234,5 Meter.",
    ],
    "fr": [
        "M. Dupont est né à Sainte-Ève en 1902.",
        "Mme Leroux et le Dr. Petit l'ont connu.",
        "« Où est le pont ? » demanda-t-il.",
        "« C'est là ! » répondit Mme Leroux.",
        "Il fut fondé au IIe siècle av. J.-C. selon certains.",
        "L'usine, c.-à-d. la filature, ferma le 1er mai 1931.",
        "Cf. la p. 12 du vol. 3.",
    ],
    "es": [
        "El Sr. García nació en Valdeluna el 3 de mayo de 1890.",
        "¿Dónde vivió la Sra. López?",
        "¡Nadie lo sabe!",
        "El Dr. Ruiz, p. ej., la conoció en la Av. Central.",
        "Vivió en el s. XIX y murió a. C. según algunos.",
        "D. Tomás y Dña. Inés compraron la mina.",
        "«¿Quién es?», preguntó él.",
    ],
    "ru": [
        "Г-н Иванов родился в г. Озёрске в 1902 г. в семье врача.",
        "Он писал стихи, т. е. сочинял их.",
        "«Кто там?» — спросил А. С. Петров.",
        "В 1930-х гг. завод закрылся.",
        "Дом стоит на ул. Садовой, д. 5.",
        "Река впадает в оз. Белое.",
        "Это было в XIX в. до н. э. по мнению учёных.",
    ],
    "zh": [
        "林小雨出生在青石镇。",
        "她的父亲是木匠。",
        "她说：“我去学校。”",
        "这座桥建于1890年，长1.5公里！",
        "为什么？",
        "「桥很老。」",
        "没有人知道。",
    ],
    "ja": [
        "山田太郎は青石町で生まれた。",
        "父は大工だった。",
        "「どこへ行くの？」と母は聞いた。",
        "「学校です。」と彼は答えた。",
        "橋は1890年に建てられ、長さは1.5キロである！",
        "なぜだろう？",
    ],
    "ar": [
        "وُلد أحمد في مدينة الزهراء عام 1902.",
        "كان أبوه نجارًا، وكانت أمه معلمة.",
        "أين عاش د. سالم؟",
        "لا أحد يعرف!",
        "كتب «تاريخ الجسر» في القرن الثالث ق. م. حسب قوله.",
        "زار الجسر أ. د. خالد يوسف.",
    ],
}
UNSPACED = ("ja", "zh")


def text_of(language: str) -> str:
    return ("" if language in UNSPACED else " ").join(SENTENCES[language])


@pytest.mark.parametrize("language", SENTENCES)
def test_a_text_is_split_in_the_language_that_is_detected(language: str) -> None:
    text = text_of(language)
    assert detect_language(text) == language
    assert split_sentences(text, language=None) == SENTENCES[language]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "en"),
        ("Köln", "en"),
        ("1, 2, 3", "en"),
        ("The Battle of La Mancha was fought by the Duke of Alba and by El Greco.", "en"),
        ("Charles Eugène de La Croix, marquis des Îles, baron du Gard et de Castelnau, was a soldier.", "en"),
        ("Chiang Rai Airport (Thai: ท่าอากาศยานเชียงราย) lies in the north of the country.", "en"),
        ("De brug is in het jaar 1890 door een ingenieur gebouwd en ligt bij de stad.", "nl"),
        ("Il ponte fu costruito da un ingegnere che è nato nella città di Alba.", "it"),
        ("Міст побудував інженер, який народився в селі.", "uk"),
        ("هر شب پدر چای می‌نوشید و کتاب می‌خواند.", "fa"),
        ("서울은 한국의 수도이다.", "ko"),
    ],
)
def test_scripts_and_function_words_tell_a_language_and_little_text_is_english(text: str, language: str) -> None:
    assert detect_language(text) == language


def test_a_document_keeps_its_language_unless_it_is_english(tmp_path: Path) -> None:
    for language, sentences in {**SENTENCES, "en": ["It is a town on the coast.", "Dr. Smith lived there."]}.items():
        (tmp_path / f"{language}.txt").write_text(" ".join(sentences), encoding="utf-8")
    kept = {Path(d.source).stem: d.origin.metadata.get("language") for d in read_documents(tmp_path) if d.origin}
    assert kept == {**{language: language for language in SENTENCES}, "en": None}
    (given,) = read_documents(tmp_path / "en.txt", language="de")
    assert given.origin is not None
    assert given.origin.metadata == {"language": "de"}


def test_a_row_has_one_id_among_documents_and_among_questions(tmp_path: Path) -> None:
    row = '{"title": "T", "text": "' + text_of("de") + '"}'
    (tmp_path / "documents.jsonl").write_text(row, encoding="utf-8")
    (tmp_path / "questions.jsonl").write_text('{"question": "Wo?", "answer": "A", "documents": [' + row + "]}", "utf-8")
    (document,) = read_documents(tmp_path / "documents.jsonl")
    (question,) = read_questions(tmp_path / "questions.jsonl")
    assert document.sentences == tuple(SENTENCES["de"])
    assert question.documents[0].id == document.id


@pytest.mark.parametrize("read", [read_documents, read_questions])
def test_an_unknown_language_is_refused_with_a_remedy(read: object, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A text.", encoding="utf-8")
    with pytest.raises(InputError, match=r"'german' is no language code of ISO 639-1; give two small letters, such as"):
        read(tmp_path / "a.txt", language="german")  # type: ignore[operator]


def test_a_quotation_that_ends_a_paragraph_is_no_heading(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "父は「学校です。」\n\n母はそれを聞いて、とても驚いた。\nそして笑った。", encoding="utf-8"
    )
    (passage,) = read_documents(tmp_path / "a.txt")
    assert passage.sentences == ("父は「学校です。」", "母はそれを聞いて、とても驚いた。", "そして笑った。")


@pytest.mark.parametrize("language", SENTENCES)
def test_without_function_words_no_phrase_is_found_and_sentences_stand_in(language: str) -> None:
    assert content_phrases(SENTENCES[language][0], language=language) == []
    document = Document("1", "T", tuple(SENTENCES[language]))
    (extraction,) = PhraseExtractor().extract([document])
    assert extraction.units == tuple(TextUnit("T", text, "1", i) for i, text in enumerate(SENTENCES[language]))
    assert f"phrases are known in English only, not in {language!r}" in extraction.statistics.failure


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("青石桥的设计者是谁？", "青石桥位于白河镇。"),
        ("橋を設計したのは誰ですか", "この橋を設計したのは林文雄である。"),
        ("من مُهَنْدِس الجسر؟", "مهندس الجسر هو سليم."),
        ("Wer baute die BRÜCKE?", "Die Brücke ist alt."),
        ("Кто построил мост?", "Этот мост построил Егор."),
    ],
)
def test_words_find_documents_in_every_script(query: str, found: str) -> None:
    others = (
        "山川在南方。",
        "彼は松木村で生まれた。",
        "القرية على النهر.",
        "Das Dorf liegt am Fluss.",
        "Село стоит на реке.",
    )
    corpus = [Document(str(i), "", (text,)) for i, text in enumerate((*others, found))]
    (hits,) = Bm25Retriever(corpus, unmatched=False).retrieve([query], 1)
    assert [hit.document.text for hit in hits] == [found]


def test_a_name_is_found_within_a_text_without_spaces() -> None:
    assert holds("他住在北京市。", "北京")
    assert holds("彼はNHKで働く。", "NHK")
    assert not holds("Canada", "Ada")
    assert not holds("Он живёт в Омске", "Ом")


def test_a_chain_goes_on_with_the_document_that_a_text_without_spaces_names() -> None:
    index = TripleIndex([[Triple("白河", "r", "t"), Triple("松木村", "r", "t")]], None)  # type: ignore[arg-type]
    np.testing.assert_array_equal(index.named(0, ["青石桥横跨白河。"]), [[1, 0]])


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (
            "1. Korfu liegt in Griechenland. 2. Dort spricht man Griechisch. Also, die Antwort ist (Griechisch).",
            "Griechisch",
        ),
        ("1. Corfou est en Grèce.\n2. On y parle grec.\nDonc la réponse est : le grec.", "le grec"),
        ("1. Corfú está en Grecia. 2. Allí se habla griego. Por lo tanto, la respuesta es griego.", "griego"),
        ("1. Корфу в Греции. 2. Там говорят по-гречески. Следовательно, ответ: греческий.", "греческий"),
        ("1. 科孚岛在希腊。2. 希腊人说希腊语。因此，答案是（希腊语）。", "希腊语"),
        (
            "1、コルフはギリシャにある。2、そこではギリシャ語が話される。したがって、答えはギリシャ語です。",
            "ギリシャ語",
        ),
        ("1. كورفو في اليونان. 2. يتحدثون هناك اليونانية. لذلك الجواب هو اليونانية.", "اليونانية"),
    ],
)
def test_steps_and_conclusions_are_read_in_eight_languages(response: str, answer: str) -> None:
    parsed = parse_response(response)
    assert (parsed.form, len(parsed.steps), parsed.answer) == ("structured", 2, answer)
    assert parse_thought(response).answer == answer


@pytest.mark.parametrize(
    "response",
    [
        "Das lässt sich nicht sagen, denn über die Stadt ist nichts bekannt.",
        "Je ne sais pas où il est né.",
        "No se sabe dónde nació el arquitecto de la ciudad.",
        "Я не знаю.",
        "我不知道。",
        "1. 科孚岛在希腊。因此，答案是未知。",
        "すみませんが、わかりません。",
        "لا أعرف.",
    ],
)
def test_abstentions_are_read_in_eight_languages(response: str) -> None:
    assert parse_response(response).form == "abstained"


def test_phrases_of_other_languages_abstain_in_no_english_response() -> None:
    text = "1. Inconnu is a fish of the north. 2. It is also called unbekannt. So the answer is (Inconnu)."
    assert parse_response(text).form == "structured"
    assert parse_response("The album is called Desconocido and was sold in Spain.").form == "unstructured"


def test_answers_are_cleaned_and_scored_by_characters_where_there_are_no_spaces() -> None:
    assert clean_answer("答案：北京。") == "北京"
    assert clean_answer("東京です。") == "東京"
    assert clean_answer("« Corfou »") == "Corfou"
    assert exact_match("《红楼梦》", "红楼梦") == 1
    assert f1_score("北京市", "北京").f1 == pytest.approx(0.8)
    assert f1_score("سليم، الكاتب", "سليم الكاتب").f1 == 1
