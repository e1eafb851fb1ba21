from __future__ import annotations

import inspect
import subprocess
import sys
from array import array

import numpy as np
import pandas as pd
import pytest
import rapidfuzz
from rapidfuzz import fuzz_py, process_py
from rapidfuzz.distance import Levenshtein

from pytrace.compat.rapidfuzz import distance, fuzz, process, utils
from pytrace.kernels import fuzzy

NAMES = ["Ada Foah", "Fort Kongenstein", "ada  foah", "Accra", None, "", "Ada", "Foah Ada Ada"]
# In its matrices, and nowhere else, RapidFuzz takes a missing text for an empty one, which equals another by some scorers.
FILLED = [name for name in NAMES if name != ""]
SCORERS = [name for name in fuzz.__all__ if name != "partial_ratio_alignment"]


@pytest.mark.parametrize("module", ["fuzz", "process", "utils", "distance"])
def test_every_public_name_of_rapidfuzz_is_there(module):
    ours, theirs = globals()[module], getattr(rapidfuzz, module)
    missing = [name for name in theirs.__all__ if not hasattr(ours, name)]
    assert missing == []
    assert set(theirs.__all__) <= set(dir(ours))


@pytest.mark.parametrize(("ours", "theirs"), [(fuzz, fuzz_py), (process, process_py)])
def test_parameters_and_defaults_are_rapidfuzz_s(ours, theirs):
    for name in ours.__all__:
        parameters = [
            [
                (p.name, p.kind, getattr(p.default, "__name__", p.default))
                for p in inspect.signature(f).parameters.values()
            ]
            for f in (getattr(ours, name), getattr(theirs, name))
        ]
        assert parameters[0] == parameters[1], name


@pytest.mark.parametrize("name", SCORERS)
def test_results_are_rapidfuzz_s_in_value_type_and_order(name):
    ours, theirs = getattr(fuzz, name), getattr(rapidfuzz.fuzz, name)
    for a in NAMES:
        assert [ours(a, b) for b in NAMES] == [theirs(a, b) for b in NAMES]
        assert ours(a, "ADA foah!", processor=utils.default_process) == theirs(
            a, "ADA foah!", processor=rapidfuzz.utils.default_process
        )
        for choices in (NAMES, tuple(NAMES), dict(enumerate(NAMES)), pd.Series(NAMES, index=list("abcdefgh"))):
            found = process.extract(a, choices, scorer=ours, limit=None)
            assert found == rapidfuzz.process.extract(a, choices, scorer=theirs, limit=None)
            assert process.extract(a, choices, scorer=theirs, limit=3) == found[:3]
            assert process.extractOne(a, choices, scorer=ours) == rapidfuzz.process.extractOne(
                a, choices, scorer=theirs
            )
            assert list(process.extract_iter(a, choices, scorer=ours)) == list(
                rapidfuzz.process.extract_iter(a, choices, scorer=theirs)
            )
    for options in ({}, {"dtype": np.uint8}, {"score_cutoff": 40}, {"score_multiplier": 2, "dtype": np.int32}):
        matrix = process.cdist(FILLED, FILLED, scorer=ours, **options)
        expected = rapidfuzz.process.cdist(FILLED, FILLED, scorer=theirs, **options)
        if (
            name == "WRatio" and "score_cutoff" in options
        ):  # it returns less than the cutoff for texts that share a word
            expected[expected < 40] = 0
        assert matrix.dtype == expected.dtype
        np.testing.assert_array_equal(matrix, expected)
        pairs = process.cpdist(FILLED, FILLED[::-1], scorer=theirs, **options)
        assert pairs.dtype == expected.dtype
        np.testing.assert_array_equal(pairs, np.diagonal(expected[:, ::-1]))


def test_the_defaults_are_rapidfuzz_s():
    assert process.extract("ada foah", NAMES) == rapidfuzz.process.extract("ada foah", NAMES)
    assert process.extractOne("ada foah", NAMES) == rapidfuzz.process.extractOne("ada foah", NAMES)
    np.testing.assert_array_equal(process.cdist(FILLED, FILLED), rapidfuzz.process.cdist(FILLED, FILLED))


def test_edit_distances_are_handed_to_rapidfuzz_with_their_order_and_type():
    names = ["new york jets", "dallas cowboys", "atlanta falcons"]
    assert process.extract("cowboys", names, scorer=distance.Levenshtein.distance, limit=1) == [
        ("dallas cowboys", 7, 1)
    ]
    assert process.extractOne("cowboys", names, scorer=Levenshtein.normalized_distance)[0] == "dallas cowboys"
    options = {"scorer": Levenshtein.distance, "scorer_kwargs": {"weights": (1, 1, 2)}}
    assert process.extract("cowboys", names, **options) == rapidfuzz.process.extract("cowboys", names, **options)
    matrix = process.cdist(names, names, scorer=distance.Levenshtein.distance)
    assert matrix.dtype == rapidfuzz.process.cdist(names, names, scorer=Levenshtein.distance).dtype
    np.testing.assert_array_equal(matrix, rapidfuzz.process.cdist(names, names, scorer=Levenshtein.distance))


EDITS = [
    (metric, form)
    for metric in ("Levenshtein", "Indel", "LCSseq", "Jaro", "JaroWinkler")
    for form in ("distance", "similarity", "normalized_distance", "normalized_similarity")
]
edits_of_rapidfuzz = pytest.mark.parametrize(("metric", "form"), EDITS)


def outcome(call):
    """Return an array's type and values, or what was raised."""
    try:
        array = call()
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)
    return array.dtype, array.shape, array.tobytes()


def edit_options(metric):
    """Return options that RapidFuzz takes, and ones that it refuses."""
    yield from ({}, {"workers": 2}, {"workers": -1}, {"workers": 0}, {"processor": str.lower}, {"processor": False})
    yield from ({"dtype": dtype} for dtype in (np.float64, np.int8, "uint8", np.int64, np.float16, "U3"))
    yield from ({"score_multiplier": multiplier} for multiplier in (0, 2, 2.5, True, -1, "x", None, 2**33))
    yield from ({"score_hint": hint} for hint in (0, 1, 0.5, "x"))
    yield from ({"score_cutoff": cutoff} for cutoff in (0, 1, 0.1, 0.3, 0.7, 0.95, 2, 5.5, -1, "x", True, 2**63, 2**65))
    yield from ({"score_cutoff": np.int64(3)}, {"score_cutoff": np.float32(0.3)})
    yield from ({"scorer_kwargs": options} for options in ({}, {"pad": True}, {"score_hint": 1}))
    if metric == "Levenshtein":
        weights = ((1, 1, 1), [1, 1, 1], (1, 1, 2), (2, 2, 2), (1, 2), None)
        yield from ({"scorer_kwargs": {"weights": some}} for some in weights)
        yield {"scorer_kwargs": {"weights": (1, 1, 1)}, "score_cutoff": 1}
    if metric == "JaroWinkler":
        yield from ({"scorer_kwargs": {"prefix_weight": weight}} for weight in (0, 0.2, 0.3, 1, 1.1, -1, None))
        yield {"scorer_kwargs": {"prefix_weight": 0.2}, "score_cutoff": 0.9}


@edits_of_rapidfuzz
def test_matrices_of_edit_distances_are_rapidfuzz_s_to_the_last_byte(metric, form):
    scorer = getattr(getattr(distance, metric), form)
    queries = [
        "Ada Foah",
        "Fort Kongenstein",
        "ada  foah",
        "",
        "Ada",
        "Foah Ada Ada",
        "x" * 70,
        "Ada Foah " * 9,
        "Ａda",
    ]
    choices = [*queries[::-1], b"Ada", "Adda Foha", "a fort in Ada Foah " * 4]
    for options in edit_options(metric):
        for first, second in ((queries, choices), (queries, queries), (choices[:2], queries), ([], queries)):
            ours = outcome(
                lambda first=first, second=second, options=options: process.cdist(
                    first, second, scorer=scorer, **options
                )
            )
            theirs = outcome(
                lambda first=first, second=second, options=options: rapidfuzz.process.cdist(
                    first, second, scorer=scorer, **options
                )
            )
            assert ours == theirs, (options, len(first), len(second))


@edits_of_rapidfuzz
def test_edit_distances_of_missing_and_other_things_are_rapidfuzz_s(metric, form):
    scorer = getattr(getattr(distance, metric), form)
    # Missing queries have no row in RapidFuzz's matrices, unless the choices are the same list.
    both = ["abc", None, "", float("nan"), "abx", "x" * 70]
    sides = [
        (["abc", "", "x" * 70], both), (both, both), (["abc"], [pd.NA]), ([["a", "b"]], ["ab", ("a", "b")]),
        (["a"], [3]), ("ab", "abc"), (["a"], 3), (pd.Series(["a", "b"]), np.array(["ab", "b"])),
    ]  # fmt: skip
    for first, second in sides:
        ours = outcome(lambda first=first, second=second: process.cdist(first, second, scorer=scorer))
        assert ours == outcome(
            lambda first=first, second=second: rapidfuzz.process.cdist(first, second, scorer=scorer)
        ), (first, second)


def test_the_kernel_and_not_rapidfuzz_makes_the_usual_matrices(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("RapidFuzz was asked")

    monkeypatch.setattr(rapidfuzz.process, "cdist", refuse)
    for metric, form in EDITS:
        scorer = getattr(getattr(distance, metric), form)
        assert process.cdist(["ab", "abc"], ["b", "abc"], scorer=scorer).shape == (2, 2)
    options = {"scorer": Levenshtein.distance, "score_cutoff": 1, "scorer_kwargs": {"weights": (1, 1, 1)}}
    assert process.cdist(["abc"], ["abx", "xyz"], **options).tolist() == [[1, 2]]
    with pytest.raises(AssertionError, match="RapidFuzz was asked"):
        process.cdist(["ab"], ["b"], scorer=distance.OSA.distance)


def test_what_is_no_text_is_handed_to_rapidfuzz():
    tokens = [["a", "fort"], ("a", "b"), array("u", "ab"), [1, 2.5]]
    for name in ("ratio", "partial_ratio", "QRatio", "WRatio"):
        for a in tokens:
            assert [getattr(fuzz, name)(a, b) for b in tokens] == [getattr(rapidfuzz.fuzz, name)(a, b) for b in tokens]
    choices = [["b", "a"], ["a", "b"]]
    assert process.extract(["a", "b"], choices) == rapidfuzz.process.extract(["a", "b"], choices)
    assert process.extract("a", ["b", pd.NA, "a"]) == [("a", 100.0, 2), ("b", 0.0, 0)]
    np.testing.assert_array_equal(
        process.cdist([["a", "b"]], [["a"], "a"]), [[np.float32(200 / 3), np.float32(200 / 3)]]
    )
    assert fuzz.partial_ratio_alignment(["a"], ["b", "a"]) == rapidfuzz.fuzz.partial_ratio_alignment(["a"], ["b", "a"])


def test_choices_may_be_read_but_once():
    assert process.extract("b", (text for text in "abc"), limit=1) == [("b", 100.0, 1)]
    assert process.extract(["b"], ([text] for text in "abc"), limit=1) == [(["b"], 100.0, 1)]
    np.testing.assert_array_equal(process.cdist(iter("ab"), (text for text in "ab")), np.eye(2) * 100)


def test_an_alignment_is_rapidfuzz_s_own_object():
    texts = ("a fort in Ada Foah, Ghana", "Ada Foa")
    assert fuzz.partial_ratio_alignment(*texts) == rapidfuzz.fuzz.partial_ratio_alignment(*texts)
    assert isinstance(fuzz.partial_ratio_alignment(*texts), distance.ScoreAlignment)
    assert fuzz.partial_ratio_alignment(*texts, score_cutoff=101) is None


def test_wrong_calls_raise_what_rapidfuzz_raises():
    for call in (
        lambda library: library.fuzz.ratio("a", 3),
        lambda library: library.process.cdist("a", 3),
        lambda library: library.process.cdist(["a"], ["a"], dtype="U3"),
        lambda library: library.process.cpdist(["a"], ["a", "b"]),
        lambda library: library.process.extract("a", ["a"], scorer=3),
        lambda library: library.process.extract("a", 3),
    ):
        with pytest.raises(Exception) as theirs:
            call(rapidfuzz)
        with pytest.raises(theirs.type) as ours:
            call(sys.modules["pytrace.compat.rapidfuzz"])
        assert str(ours.value) == str(theirs.value)


WITHOUT = """
import sys
import numpy as np
sys.modules["rapidfuzz"] = None  # importing it fails
from pytrace.compat.rapidfuzz import distance, fuzz, process, utils
from pytrace.kernels import fuzzy

def refusal(call):
    try:
        call()
    except ImportError as error:
        return str(error)

assert fuzz.WRatio("Ada Foah", "a fort in Ada Foah") == 90
assert process.extract("b", ["a", None, "b"], limit=1) == [("b", 100.0, 2)]
assert list(process.extract_iter("b", {"x": "a", "y": None, "z": "b"}, score_cutoff=50)) == [("b", 100.0, "z")]
assert process.cdist(["a"], ["a", "b"]).tolist() == [[100, 0]]
assert fuzz.partial_ratio_alignment("ab", "xab") == (100.0, 0, 2, 1, 3)
assert utils.default_process("  Ça-va? \\u0130_X ") == "ça va  \\u0130_x"
assert "s1 is of type list" in refusal(lambda: fuzz.ratio(["a"], "a"))
for call in (lambda: distance.Levenshtein, lambda: process.cdist([["a"]], ["a"]), lambda: utils.default_process(3),
             lambda: list(process.extract_iter("a", ["b"], scorer=max)), lambda: process.extract("a", ["b"], scorer=max)):
    assert "pip install rapidfuzz" in refusal(call), call
"""


def test_texts_need_no_rapidfuzz_and_the_rest_names_it():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)


def test_rapidfuzz_is_not_imported_before_it_is_needed():
    code = (
        "import sys; from pytrace.compat import rapidfuzz as r; r.fuzz.ratio('a', 'b'); r.process.extract('a', ['b'])"
    )
    subprocess.run([sys.executable, "-c", f"{code}; assert 'rapidfuzz' not in sys.modules"], check=True)


def test_default_process_without_rapidfuzz_is_its_python_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    monkeypatch.setitem(sys.modules, "rapidfuzz.utils", None)
    for start in range(0, 0x11000, 16):
        text = "".join(chr(point) for point in range(start, start + 16))
        ours = utils.default_process(text)
        theirs = rapidfuzz.utils_py.default_process(text)
        assert ours == theirs or len(theirs) > len(text.strip()), hex(start)


def test_our_own_front_takes_the_same_scorers():
    assert process.extractOne("b", ["a", "b"], scorer=fuzzy.ratio) == ("b", 100.0, 1)
