from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrace.certify.claims import ClaimChecker
from pytrace.certify.claims.features import FEATURES, compare
from pytrace.certify.claims.replaced import exactly_replaced
from pytrace.certify.claims.rows import read_response_rows
from pytrace.certify.claims.splitting import claim_places
from pytrace.certify.claims.text_tokens import TextTokens
from pytrace.certify.claims.tokens import tokens
from pytrace.certify.claims.weights import ClaimWeights, Logistic
from pytrace.check_records import CheckedClaim
from pytrace.errors import InputError
from pytrace.records import Document, Origin

DAM = Document(
    "dam",
    "Akosombo Dam",
    (
        "The Akosombo Dam was built by Impregilo between 1961 and 1965.",
        "Kwame Nkrumah opened the dam in January 1966 in front of two thousand guests.",
        "Its lake, Lake Volta, is not the deepest lake of Ghana.",
        "Edward Foster's film about the dam won no prize.",
    ),
    "dam.txt",
)
GEESE = Document("geese", "Geese", ("Geese fly south in October.",), "geese.txt")


def check(claim: str) -> CheckedClaim:
    (checked,) = ClaimChecker().check_claims([claim], [GEESE, DAM])
    return checked


@pytest.mark.parametrize(
    "claim",
    [
        "The Akosombo Dam was built by Impregilo.",
        "Impregilo built the Akosombo Dam.",
        "The dam was built between 1961 and 1965.",
        "Kwame Nkrumah opened the dam in front of 2,000 guests.",
        "The dam was opened by Kwame Nkrumah in January 1966.",
        "Lake Volta isn't the deepest lake of Ghana.",
        "Geese fly south in October.",
    ],
)
def test_what_the_documents_say_in_like_words_is_supported(claim):
    checked = check(claim)
    assert checked.label == "supported", checked
    assert checked.supported >= 0.5
    assert checked.supported + checked.contradicted <= 1


@pytest.mark.parametrize(
    "claim",
    [
        "Impregilo was built by the Akosombo Dam.",
        "The Akosombo Dam was not built by Impregilo.",
        "The Akosombo Dam wasn't built by Impregilo between 1961 and 1965.",
        "The Akosombo Dam was built by Impregilo between 1961 and 1985.",
        "Kwame Nkrumah opened the dam in January 1976 in front of two thousand guests.",
        "Kwame Nkrumah opened the dam in March 1966.",
        "Kwame Nkrumah opened the dam in front of six thousand guests.",
        "Lake Volta is the deepest lake of Ghana.",
        "Edward Foster opened the dam in January 1966 in front of two thousand guests.",
    ],
)
def test_a_swap_a_negation_another_number_month_or_name_is_not_supported(claim):
    assert check(claim).label != "supported", check(claim)


def test_what_stands_nowhere_is_not_there_and_has_its_words_marked():
    checked = check("The Akosombo Dam was painted blue by Dutch sailors.")
    assert checked.label == "not there"
    assert [checked.text[start:end] for start, end in checked.missing] == ["painted", "blue", "Dutch", "sailors"]
    assert "painted, blue, Dutch, sailors" in checked.reason
    nothing = check("Penguins swim.")
    assert (nothing.label, nothing.supported, nothing.contradicted, nothing.evidence) == ("not there", 0.0, 0.0, ())


def test_evidence_says_where_it_stands():
    origin = Origin("dam", DAM.title, start=10, end=250, sentences=(10, 80, 160, 210), pages=(3, 3, 4, 4))
    placed = Document("dam", DAM.title, DAM.sentences, "dam.pdf", origin)
    (checked,) = ClaimChecker().check_claims(["Lake Volta is not the deepest lake of Ghana."], [placed])
    best = checked.evidence[0]
    assert (best.document, best.title, best.sentence, best.text) == ("dam", DAM.title, 2, DAM.sentences[2])
    assert best.source == placed.citation(2)
    assert "p. 4" in best.source


def test_claims_are_what_a_response_states_and_not_its_thinking_or_marks():
    response = (
        "<think>Geese swim?</think>### Geese\n- **Where:** geese *fly* south in `October` [1]\n\n| Bird | Fact |\n|---|---|\n"
        "| 1 | Geese fly south in October. |\n"
    )
    checked = ClaimChecker().check(response, [GEESE])
    assert [claim.label for claim in checked.claims][-1] == "supported"
    assert not any("swim" in claim.text or "Bird" in claim.text for claim in checked.claims)
    for claim in checked.claims:
        assert response[claim.start : claim.end] == claim.text
    assert ClaimChecker().check('{"steps": ["Geese fly south in October."]}', [GEESE]).claims
    answered = '{"steps": ["Geese fly south in October."], "answer": "south"}'
    assert [claim.text for claim in ClaimChecker().check(answered, [GEESE]).claims] == [
        "Geese fly south in October.",
        "south",
    ]


def test_steps_of_a_row_are_claimed_before_its_answer(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [
        {"steps": ["1. Geese fly.", "They rest."], "answer": "South"},
        {"steps": ["Geese fly."], "response": "They fly south."},
        {"rationale": "Geese fly. They rest.", "prediction": "South"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    texts = [row.text for row in read_response_rows(path)]
    assert texts == ["Geese fly.\n\nThey rest.\n\nSouth", "They fly south.", "Geese fly.\n\nThey rest.\n\nSouth"]


def test_a_claim_may_rest_on_several_sentences():
    checked = check("The dam that Impregilo built was opened by Kwame Nkrumah in January 1966.")
    assert {one.sentence for one in checked.evidence} >= {0, 1}
    assert checked.label == "supported"


def test_claims_of_a_response_stand_where_it_has_them_and_its_score_is_their_share():
    response = (
        "Here is what I found:\n\n1. The Akosombo Dam was built by **Impregilo**, and it was painted blue by Dutch sailors.\n"
        "2. Geese   fly\nsouth in October."
    )
    checked = ClaimChecker().check(response, [DAM, GEESE])
    for claim in checked.claims:
        assert response[claim.start : claim.end] == claim.text
    labels = {claim.text.split(",")[0]: claim.label for claim in checked.claims}
    assert labels["The Akosombo Dam was built by **Impregilo**"] == "supported"
    assert labels["and it was painted blue by Dutch sailors."] == "not there"
    assert labels["Geese   fly\nsouth in October."] == "supported"
    assert checked.score == sum(claim.label == "supported" for claim in checked.claims) / len(checked.claims)


def test_a_pronoun_that_begins_a_claim_is_read_as_the_subject_before_it():
    film = Document("film", "The Dam", ("It was made in 1975.",))
    checked = ClaimChecker().check(
        "Lake Volta is not deep. It was made in 1975, and it was shown in Accra and Kumasi.", [film, GEESE]
    )
    assert [claim.subject for claim in checked.claims] == ["", "Lake Volta", "Lake Volta"]
    assert checked.claims[2].label == "not there"
    assert checked.claims[1].label == "not there"
    alone = ClaimChecker().check("It was made in 1975.", [film])
    assert [(claim.subject, claim.label) for claim in alone.claims] == [("", "supported")]
    for claim in checked.claims[1:]:
        assert "Volta" not in [claim.text[start:end] for start, end in claim.missing]


@pytest.mark.parametrize("response", ["", "   ", "...", "It was so.", "1. \n2. "])
def test_a_response_that_claims_nothing_has_no_claims_and_no_score(response):
    checked = ClaimChecker().check(response, [DAM])
    assert (checked.claims, checked.score) == ((), 0.0)


def test_without_documents_nothing_is_there():
    assert [claim.label for claim in ClaimChecker().check("Geese fly south.", []).claims] == ["not there"]
    assert ClaimChecker().check_claims([], [DAM]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6 million people", [("6 million", 6e6), ("people", None)]),
        ("two thousand", [("two thousand", 2000.0)]),
        ("1,250.5 on the 3rd", [("1,250.5", 1250.5), ("on", None), ("the", None), ("3rd", 3.0)]),
        ("the 1960s", [("the", None), ("1960s", 1960.0)]),
        ("Paris's U.S. office", [("paris", None), ("s", None), ("u.s", None), ("office", None)]),
        ("1.2.3", [("1.2.3", None)]),
    ],
)
def test_numbers_are_read_by_their_values(text, expected):
    assert [(token.form, token.value) for token in tokens(text)] == expected


def test_kinds_of_words():
    text = "Ada Foah isn't in May 1783, said Kofi. The Volta cannot."
    kinds = {text[token.start : token.end]: token.kind for token in tokens(text)}
    assert kinds["Foah"] == kinds["Kofi"] == kinds["Volta"] == "name"
    assert kinds["May"] == "month"
    assert kinds["1783"] == "number"
    assert kinds["in"] == kinds["The"] == kinds["is"] == "function"
    assert kinds["t"] == kinds["cannot"] == "negation"


def test_a_swap_is_seen_and_a_passive_is_none():
    def swapped(claim: str, evidence: str) -> float:
        return float(compare(tokens(claim), [tokens(evidence)]).features[FEATURES.index("swapped")])

    assert swapped("Brutus killed Caesar in Rome.", "Caesar killed Brutus in Rome.") == 1
    assert swapped("Caesar was killed by Brutus.", "Brutus killed Caesar.") == 0
    assert swapped("Brutus killed Caesar.", "Brutus killed Caesar.") == 0
    assert swapped("The father of Ada is George.", "The father of George is Ada.") == 1
    assert swapped("Brutus and Caesar came to Rome.", "Caesar and Brutus came to Rome.") == 0
    assert swapped("Caesar married Calpurnia.", "Calpurnia married Caesar.") == 0


def test_order_of_documents_and_of_other_claims_changes_nothing():
    claims = ["Impregilo built the Akosombo Dam.", "Geese fly south in May.", "Penguins swim."]
    together = ClaimChecker().check_claims(claims, [DAM, GEESE])
    apart = [ClaimChecker().check_claims([claim], [GEESE, DAM])[0] for claim in claims]
    assert [(one.label, one.supported) for one in together] == [(one.label, one.supported) for one in apart]


def test_long_and_odd_texts_end():
    word = "Volta " * 50_000
    long = Document("long", word[:500], (word, "a" * 100_000, "ܐ" * 1000, "\ud800 lone", "5" * 400))
    for claim in (word, "b" * 100_000, "\ud800 lone", "5" * 400, "9" * 400 + " million", "Ⅷ ½ ٣"):
        assert ClaimChecker().check_claims([claim], [long])[0].label in ("supported", "contradicted", "not there")


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=4))
def test_any_text_is_read(claim, sentences):
    document = Document("1", "", tuple(sentences))
    checked = ClaimChecker().check(claim, [document])
    assert 0 <= checked.score <= 1
    for one in checked.claims:
        assert claim[one.start : one.end] == one.text
        assert 0 <= one.supported + one.contradicted <= 1 + 1e-9
    for token in tokens(claim):
        assert 0 <= token.start < token.end <= len(claim)
    places = claim_places(claim)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(places))


def test_sentences_are_chosen_by_what_they_have_of_a_claim():
    text = TextTokens(["A ship sank.", "Kofi Annan was born in Kumasi.", "Kumasi is a city."], ["", "", ""])
    assert text.choose(tokens("Kofi Annan was born in the city of Kumasi.")) == [1, 2]
    assert text.choose(tokens("Nothing like it.")) == []


def test_the_title_counts_as_said_by_its_sentences():
    under = Document("1", "Kofi Annan", ("He was born in Kumasi.",))
    (checked,) = ClaimChecker().check_claims(["Kofi Annan was born in Kumasi."], [under])
    assert checked.label == "supported"


def test_weights_of_other_features_are_refused():
    shipped = ClaimWeights.shipped()
    assert set(shipped.supported.features) == set(FEATURES)
    with pytest.raises(InputError, match="coverage"):
        Logistic({name: 0.0 for name in FEATURES if name != "coverage"}, 0.0)


@pytest.mark.parametrize(
    "response",
    [
        "Great question!",
        "I hope this helps!",
        "The documents do not say who built it.",
        "There is no information about its captain.",
        "I'm not sure which yard built her.",
        "I don’t know.",
        "**Weight:** not stated in the documents.",
        "Unknown",
        "Sure, happy to help!",
        "That's an interesting one!",
        "Could you name the ship that you mean?",
        "His birthplace isn't stated in the documents.",
        "The name of that prize is not given.",
    ],
)
def test_what_greets_or_does_not_know_claims_nothing(response):
    assert claim_places(response) == []


@pytest.mark.parametrize(
    "response",
    [
        "It is not in Ghana",
        "It is not in Ghana, but in Togo",
        "It does not contain salt",
        "There is no road to the lake",
        "It never held a record",
        "They do not name their ships.",
        "Nobody has no answer to the flood of 1965.",
    ],
)
def test_what_denies_something_is_a_claim(response):
    places = claim_places(response)
    assert places[0][0] == 0
    assert response[slice(*places[0])].rstrip(",") in response


def test_lead_ins_are_no_part_of_a_claim_and_rows_and_items_are_claims_of_their_own():
    response = "According to the documents, Lake Volta lies in Ghana.\n- Akosombo: 1965\n- Kpong: 1982\n\n| Dam | Year |\n|---|---|\n| Pra | 2013 |"
    claims = [response[slice(*place)] for place in claim_places(response)]
    assert claims[:3] == ["Lake Volta lies in Ghana.", "Akosombo: 1965", "Kpong: 1982"]
    assert "Pra" in claims[-1]
    assert "2013" in claims[-1]
    assert len(claims) == 4
    kept = "From records of 1860, the lake was dry."
    assert [kept[slice(*place)] for place in claim_places(kept)] == [kept]


GULL = Document(
    "g", "Sorrel Gull", ("She took the place of the Marigold Tern in 1978.", "She is larger than the Tern.")
)
BELL = Document("b", "Lady Addle", ("Her bell went to the school of Nethercove, and her wheel to the inn.",))


def labelled(claim: str, *documents: Document) -> str:
    return ClaimChecker().check_claims([claim], documents)[0].label


def test_roles_are_read_where_a_pronoun_stands_for_the_title():
    assert labelled("The Sorrel Gull took the place of the Marigold Tern in 1978.", GULL) == "supported"
    assert labelled("The Marigold Tern took the place of the Sorrel Gull in 1978.", GULL) == "contradicted"


def test_words_that_have_changed_places_are_seen():
    assert labelled("Her bell went to the school of Nethercove, and her wheel to the inn.", BELL) == "supported"
    assert labelled("Her wheel went to the school of Nethercove, and her bell to the inn.", BELL) != "supported"


def test_what_is_said_before_that_or_with_regret_is_no_claim():
    response = "I'm sorry, but the documents do not say. The documents say only that geese fly south."
    assert [response[slice(*place)] for place in claim_places(response)] == ["geese fly south."]


def test_numbers_of_two_words_are_one_number():
    river = Document("r", "River Addle", ("It reaches the sea after seventy-one kilometres.",))
    assert labelled("The River Addle reaches the sea after 71 kilometres.", river) == "supported"
    assert labelled("The River Addle reaches the sea after 17 kilometres.", river) != "supported"


def test_a_sentence_of_a_document_that_is_not_named_excuses_nothing():
    foundry = Document("f", "Orrin Bell Foundry", ("It was founded by Matthias Garrow, who had been a cook.",))
    slate = Document("s", "Slate Company", ("It was founded by the mason Lucas Fenn.",))
    (claim,) = ClaimChecker().check_claims(
        ["The Orrin Bell Foundry was founded by Lucas Fenn, a cook."], [foundry, slate]
    )
    assert {sentence.document for sentence in claim.evidence} == {"f"}
    assert claim.label != "supported"


WREN = Document(
    "wren",
    "Skarra wren",
    ("The Skarra wren is small.", "It is larger and darker than the wren of the mainland and sings louder."),
)
BOAT = Document(
    "boat",
    "Hester Vane",
    ("In 1953 she was at sea for nineteen hours and saved eleven men of the collier Quiet Ondine.",),
)
STONES = Document("stones", "Anselm Thorrow", ("His stones were left to the observatory, which had asked for none.",))
FILM = Document(
    "film",
    "Toote Khilone",
    (
        "Toote Khilone is a film produced by Prem Sawhney and Mahendra Shah.",
        "The film is directed by Ketan Anand.",
        "Ada Noël was the second woman to sail round the Cape in May.",
    ),
)


@pytest.mark.parametrize(
    ("document", "true", "false"),
    [
        # Both sides of "than" have a wren.
        (
            WREN,
            "The Skarra wren is larger and darker than the wren of the mainland and sings louder.",
            "The wren of the mainland is larger and darker than the Skarra wren and sings louder.",
        ),
        # The pronoun stands behind the year.
        (
            BOAT,
            "In 1953 the Hester Vane saved eleven men of the collier Quiet Ondine.",
            "In 1953 the collier Quiet Ondine saved eleven men of the Hester Vane.",
        ),
        (STONES, "The observatory had asked for none.", "The observatory had asked for it."),
        # The other name stands in another sentence.
        (FILM, "The film is directed by Ketan Anand.", "The film is directed by Mahendra Shah."),
        (
            FILM,
            "Ada Noel was the 2nd woman to sail round the Cape in May.",
            "Ada Noel was the third woman to sail round the Cape in May.",
        ),
        (
            FILM,
            "Ada No\u0065\u0308l was the second woman to sail round the Cape in May.",
            "Ada No\u0065\u0308l was the second woman to sail round the Cape in June.",
        ),
    ],
)
def test_one_difference_decides(document, true, false):
    supported, refuted = ClaimChecker().check_claims([true, false], [document])
    assert supported.label == "supported", supported
    assert refuted.label == "contradicted", refuted


@pytest.mark.parametrize(
    ("claim", "sentence", "expected"),
    [
        ("It was made in 1965 by Impregilo.", "It was made in 1965 by Bechtel.", True),
        ("It was made in 1966 by Impregilo.", "It was made in May by Impregilo.", True),
        ("It was made in 1965 by Impregilo.", "It was made in 1965 by Impregilo in Ghana.", False),
        # What stands behind is not compared.
        ("It was made by Impregilo.", "It was made by Bechtel, a company of five sons, in 1965.", True),
        # A name in the place of the one that the sentence begins with, and no word in its place.
        ("Volta was made by Impregilo.", "Lake Kariba was made by Impregilo.", True),
        ("Lake Volta was made by Impregilo.", "In 1965, it was made by Impregilo.", False),
        ("The lake was made by Impregilo.", "Kariba was made by Impregilo.", False),
        ("Tim Roth was made a knight.", "Timothy Simon Roth was made a knight.", False),
        # More is different than one name.
        ("It was painted in 1965 by Impregilo.", "It was made in 1965 by Bechtel.", False),
        # Moved, not replaced.
        ("It was made in Ghana by Impregilo.", "It was made by Impregilo in Ghana.", False),
        # With a negation besides, both may be true.
        ("It was not made by Impregilo.", "It was made by Bechtel.", False),
        ("", "It was made by Bechtel.", False),
        ("It was made by Impregilo.", "", False),
    ],
)
def test_a_name_or_number_in_the_place_of_another(claim, sentence, expected):
    assert exactly_replaced(tokens(claim), tokens(sentence)) == expected


def test_another_number_is_seen_in_whatever_order():
    wrong, right = check("In 1985 the Akosombo Dam was built by Impregilo."), check("In 1965 Impregilo built the dam.")
    assert wrong.supported < 0.1
    assert "another number" in wrong.reason
    assert right.label == "supported"
    assert check("In 1985 the Akosombo Dam was not built by Impregilo.").supported > wrong.supported


def test_a_part_of_a_sentence_rests_on_the_sentence_of_the_part_before():
    poems = Document("poems", "Poems", ("Each of its poems is about one bird, and none of them names it.",))
    names = Document("names", "Names", tuple(f"{number} boats were named after winds." for number in range(12)))
    checked = ClaimChecker().check("Each of the poems is about one bird, and all of them name it.", [names, poems])
    assert checked.claims[0].label == "supported"
    assert checked.claims[1].evidence[0].document == "poems"
    assert checked.claims[1].label != "supported"


@pytest.mark.parametrize(
    ("claim", "text", "label"),
    [
        ("Wenda Holt is the mayor of Gorsey.", "The mayor of Gorsey is Wenda Holt.", "supported"),
        ("The mayor of Gorsey is Wenda Holt.", "Wenda Holt is the mayor of Gorsey.", "supported"),
        ("Quill is the capital of Tern.", "Tern is the capital of Quill.", "contradicted"),
    ],
)
def test_who_somebody_is_may_be_said_from_either_end(claim, text, label):
    (checked,) = ClaimChecker().check_claims([claim], [Document("1", "", (text,))])
    assert checked.label == label


LIGHT = Document("a", "Skarra Light", ("Skarra Light is a lighthouse.", "It was built in 1912 by Matthias Garrow."))


def dated(name: str, date: str, *sentences: str) -> Document:
    return Document(name, "Lighthouses", sentences, f"{name}.md", Origin(name, "Lighthouses", metadata={"date": date}))


def test_documents_that_disagree_are_named_with_their_dates():
    other = dated("b", "2021-04-02", "Many stand on the coast.", "Skarra Light was built in 1913 by Matthias Garrow.")
    later, built, unlike = ClaimChecker().check_claims(
        ["Skarra Light was built in 1913.", "Matthias Garrow built Skarra Light.", "Skarra Light was built in 1950."],
        [LIGHT, other],
    )
    assert later.label == "supported"
    (against,) = later.disagreeing
    assert (against.label, against.evidence.document, later.evidence[0].date) == ("contradicted", "a", "2021-04-02")
    # Another document that says the same is listed, and is no disagreement.
    assert [one.label for one in built.others] == ["supported"]
    assert unlike.label == "contradicted"
    assert built.disagreeing == unlike.disagreeing == ()


def test_passages_of_one_document_are_no_other_documents():
    origin = Origin("book", "Book")
    passages = [Document(f"book:{k}", "Book", (f"Skarra Light was built in {1912 + k}.",), "", origin) for k in (0, 1)]
    (claim,) = ClaimChecker().check_claims(["Skarra Light was built in 1912."], passages)
    assert (claim.label, claim.others) == ("supported", ())
    more = [Document(f"book:{k}", "Book", (f"Skarra Light was built in {1912 + k}.",), "", origin) for k in range(6)]
    others = [dated("c", "", "Skarra Light was built in 1920."), dated("d", "", "Skarra Light was built in 1921.")]
    (claim,) = ClaimChecker().check_claims(["Skarra Light was built in 1912."], [*more, *others])
    assert {one.evidence.document for one in claim.others} == {"c", "d"}


def test_at_most_two_other_documents_are_compared():
    others = [dated(f"d{k}", "", f"Skarra Light was built in {1900 + k}.") for k in range(6)]
    (claim,) = ClaimChecker().check_claims(["Skarra Light was built in 1912."], [LIGHT, *others])
    assert [one.label for one in claim.others] == ["contradicted"] * 2
