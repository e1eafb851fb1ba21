"""A claim is supported if evidence states its predicate of its subject; words alone, and words that only look alike, are not enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.claims import CheckedClaim, ClaimChecker
from pytrace.certify.claims.answer_claims import answer_statement
from pytrace.certify.claims.checker import MIN_SUPPORTED
from pytrace.certify.claims.clauses import Clauses
from pytrace.certify.claims.predicates import find_statement
from pytrace.certify.claims.tokens import tokens
from pytrace.certify.claims.word_forms import are_one_word, lemma
from pytrace.documents import read_documents
from pytrace.records import Document
from tests.certify.test_example_responses import EXAMPLES


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return list(read_documents(EXAMPLES / "docs"))


def check(claim: str, *documents: Document) -> CheckedClaim:
    (checked,) = ClaimChecker().check_claims([claim], documents)
    assert (checked.label == "supported") == (checked.supported >= MIN_SUPPORTED)
    return checked


@pytest.mark.parametrize(
    "forms",
    [
        "founded founding founds",
        "bake bakes baked baking",
        "city cities",
        "hope hoped hoping",
        "stop stops stopped stopping",
        "model modelled modelling",
        "write writes wrote written writing",
        "build builds built building",
        "die dies died dying",
        "child children",
        "woman women",
        "organize organized organizing",
        "authority authorities",
    ],
)
def test_inflected_forms_are_one_word(forms):
    assert len({lemma(form) for form in forms.split()}) == 1
    first, *others = forms.split()
    assert all(are_one_word(first, other, english=True) for other in others)


@pytest.mark.parametrize(
    "words",
    [
        "founded foundry founder",
        "baker bakery",
        "author authority",
        "general generate",
        "university universe",
        "organ organize",
        "marine mariner",
        "nation national",
        "create creator creation",
        "relative relation",
        "police policy",
        "single singer",
        "hope hop",
    ],
)
def test_words_of_another_part_of_speech_or_meaning_are_not_one(words):
    forms = words.split()
    assert len({lemma(form) for form in forms}) == len(forms)
    assert not any(are_one_word(a, b, english=True) for a in forms for b in forms if a != b)


def test_other_languages_are_compared_by_their_first_letters():
    assert are_one_word("kirche", "kirchen", english=False)
    assert are_one_word("fondee", "fonde", english=False)
    church = Document(
        "k", "Kirche", ("Die Kirche wurde im Jahr 1802 von den Mönchen der Stadt aus rotem Stein gebaut.",)
    )
    assert check("Die Kirche wurde im Jahr 1802 von den Mönchen aus rotem Steine gebaut.", church).label == "supported"


@pytest.mark.parametrize(
    "claim",
    [
        "Matthias Garrow founded the Orrin Bell Foundry.",
        "The Orrin Bell Foundry was founded by Matthias Garrow.",
        "Matthias Garrow founded the foundry that cast the bell of the Lady Addle.",
        "Matthias Garrow, who founded the Orrin Bell Foundry, had been a cook in the navy.",
    ],
)
def test_the_founder_of_the_foundry_is_supported(claim, documents):
    assert check(claim, *documents).label == "supported"


@pytest.mark.parametrize(
    "claim",
    [
        "The Prince Osric founded the Orrin Bell Foundry.",
        "The Orrin Bell Foundry was founded by the Prince Osric.",
        "Skarra Light founded the Orrin Bell Foundry.",
        "The Orrin Bell Foundry founded Matthias Garrow.",
        "Matthias Garrow founded the navy.",
    ],
)
def test_a_ship_or_a_lighthouse_founded_nothing(claim, documents):
    assert check(claim, *documents).label != "supported"


@pytest.mark.parametrize("answer", ["Skarra Light", "Prince Osric", "Tobias Rook", "Piet Harrowmere", "Pellisk"])
def test_a_wrong_answer_put_to_its_question_is_not_supported(answer, documents):
    question = "Who founded the foundry that cast the bell of the Lady Addle?"
    assert check(answer_statement(question, answer), *documents).label != "supported"
    assert check(answer_statement(question, "Matthias Garrow"), *documents).label == "supported"


@pytest.mark.parametrize("answer", ["Corwin Dace", "Wilhelmina Crake", "Prince Osric", "Marigold Petrel"])
def test_a_wrong_founder_of_the_company_of_a_ferry_is_not_supported(answer, documents):
    question = "Who founded the company that owns the Marigold Tern?"
    assert check(answer_statement(question, answer), *documents).label != "supported"
    assert check(answer_statement(question, "Tobias Rook"), *documents).label == "supported"


BAKERY = Document(
    "b",
    "Holm Bakery",
    ("It was opened in 1911 by the baker Ilse Marl, who had learned from Tarek Voss.", "It sold bread to the ships."),
)
COUNCIL = Document(
    "c",
    "Harbour Council",
    (
        "The author Ada Foah wrote the first report of the Harbour Council.",
        "The council gave General Kofi Mensah authority over the docks.",
        "Kofi Mensah sold the organ of the chapel to the University of Accra.",
        "The university was praised by Yaw Boateng.",
    ),
)


@pytest.mark.parametrize(
    ("document", "claim"),
    [
        (BAKERY, "Ilse Marl opened the Holm Bakery in 1911."),
        (BAKERY, "The Holm Bakery was opened by Ilse Marl."),
        (BAKERY, "Ilse Marl, who opened the Holm Bakery, had learned from Tarek Voss."),
        (BAKERY, "The Holm Bakery sold bread to the ships."),
        (COUNCIL, "Ada Foah wrote the first report of the Harbour Council."),
        (COUNCIL, "The first report of the Harbour Council was written by Ada Foah."),
        (COUNCIL, "The organ of the chapel was sold to the University of Accra by Kofi Mensah."),
        (COUNCIL, "Yaw Boateng praised the university."),
    ],
)
def test_active_and_passive_voice_say_the_same(document, claim):
    assert check(claim, document).label == "supported", check(claim, document)


@pytest.mark.parametrize(
    ("document", "claim"),
    [
        (BAKERY, "Tarek Voss opened the Holm Bakery in 1911."),
        (BAKERY, "The Holm Bakery was opened by Tarek Voss in 1911."),
        (BAKERY, "The Holm Bakery opened Ilse Marl."),
        (BAKERY, "Ilse Marl bakes bread for the ships."),
        (COUNCIL, "Kofi Mensah wrote the first report of the Harbour Council."),
        (COUNCIL, "The first report of the Harbour Council was written by Kofi Mensah."),
        (COUNCIL, "Yaw Boateng sold the organ of the chapel to the University of Accra."),
        (COUNCIL, "The university praised Yaw Boateng."),
        (COUNCIL, "Ada Foah authored the docks."),
        (COUNCIL, "Kofi Mensah organized the chapel of the University of Accra."),
        (COUNCIL, "The council generated the docks."),
    ],
)
def test_another_subject_or_a_word_that_looks_alike_is_not_supported(document, claim):
    assert check(claim, document).label != "supported", check(claim, document)


STATION = Document(
    "s",
    "Skarra Marine Station",
    (
        "The Skarra Marine Station is the largest laboratory on the Tamarrow Coast, with a crew of nine.",
        "Ruth Calder used its seven boats.",
    ),
)


@pytest.mark.parametrize(
    ("claim", "statement"),
    [
        ("Matthias Garrow set up the foundry.", "reworded"),
        ("Prince Osric founded the foundry.", "other roles"),
        ("Matthias Garrow ran the foundry that made the bell.", "not stated"),
        ("Tarek Voss ran the foundry.", "not stated"),
        ("Matthias Garrow", "not stated"),
    ],
)
def test_a_predicate_in_other_words_is_told_from_one_of_something_else(claim, statement):
    evidence = [tokens("The foundry was founded by Matthias Garrow, who had cast the bell for Prince Osric.")]
    assert find_statement(tokens(claim), evidence) == statement


def test_a_predicate_in_other_words_is_supported_if_all_else_is_there():
    response = (
        "The Skarra Marine Station has a crew of nine, which makes it the largest laboratory on the Tamarrow Coast."
    )
    claims = ClaimChecker().check(response, [STATION]).claims
    assert [claim.label for claim in claims] == ["supported", "supported"], claims


def test_short_verbs_are_found_in_other_forms():
    others = [Document(f"o{at}", f"Ferry {at}", (f"Rook had ferry {at} and the Tern.",)) for at in range(30)]
    owned = Document("t", "", ("The Tern is owned by Rook, a pilot from the islands who retired at an early age.",))
    assert check("Rook owns the Tern.", *others, owned).evidence[0].document == "t"


def test_names_without_a_predicate_are_not_supported_unless_another_claim_has_them():
    assert check("Ilse Marl", BAKERY).label == "not there"
    assert check("Tarek Voss, the Holm Bakery.", BAKERY).label != "supported"
    right = ClaimChecker().check("Ilse Marl.\n\nThe Holm Bakery was opened by Ilse Marl.", [BAKERY])
    wrong = ClaimChecker().check("Tarek Voss.\n\nThe Holm Bakery was opened by Ilse Marl.", [BAKERY])
    assert [claim.label for claim in right.claims] == ["supported", "supported"]
    assert [claim.label for claim in wrong.claims] == ["not there", "supported"]
    assert right.claims[0].evidence == right.claims[1].evidence


def test_a_reason_says_that_the_roles_differ():
    assert "of something else" in check("Tarek Voss opened the Holm Bakery in 1911.", BAKERY).reason
    assert "does not state its predicate" in check("Ilse Marl", BAKERY).reason


def roles(sentence: str) -> list[tuple[str, str | None, str | None]]:
    words = tokens(sentence)

    def text(phrase):
        return None if phrase is None else " ".join(words[at].form for at in phrase)

    return [(words[at].form, text(clause.agent), text(clause.patient)) for at, clause in Clauses(words).clauses.items()]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Tobias Rook founded the company.", [("founded", "tobias rook", "company")]),
        ("The company was founded in 1902 by Tobias Rook.", [("founded", "tobias rook", "company")]),
        ("The ship that Rook bought sank.", [("bought", "rook", "ship"), ("sank", "ship", None)]),
        ("The company that he founded in 1902 failed.", [("founded", "", "company"), ("failed", "company", None)]),
        ("He sold the company she had founded.", [("sold", "", "company"), ("founded", "", "company")]),
        ("Founded in 1802 by Garrow, the foundry cast bells.", [("founded", "garrow", "foundry"), ("cast", "foundry", "bells")]),
        ("Hobb and Lasker, a yard in Holm, built her.", [("built", "hobb lasker", "")]),
        ("The foundry in Pellisk cast bells.", [("cast", "foundry", "bells")]),
        ("The daughter of Rook led the firm.", [("led", "daughter", "firm")]),
        ("Ada Foah (born 1802) sold nine ships.", [("born", None, "ada foah"), ("sold", "ada foah", "nine ships")]),
        ("Vedam is a film written and directed by Nolan.", [("is", "vedam", "film"), ("written", "nolan", "vedam film"), ("directed", "nolan", "vedam film")]),
    ],
)  # fmt: skip
def test_clauses_have_agents_and_patients(sentence, expected):
    assert roles(sentence) == expected


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=3))
def test_any_text_has_clauses_and_a_statement(claim, sentences):
    read = tokens(claim)
    for clause in Clauses(read).clauses.values():
        assert all(0 <= at < len(read) for phrase in (clause.agent, clause.patient) for at in phrase or ())
    assert find_statement(read, [tokens(sentence) for sentence in sentences]) in (
        "stated",
        "reworded",
        "other roles",
        "not stated",
    )


def test_a_chain_of_many_verbs_ends():
    words = tokens("He founded and sold " * 300)
    assert len(Clauses(words).clauses) > 400
