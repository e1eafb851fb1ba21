"""The page of certificates is one safe file, a browser shows and filters it, and pictures and plots say what they should."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import math
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytrace.certify.certification_scores import CertificationScores, score_certificates
from pytrace.check_records import Certificate, CertifiedStep, ErrorKind, Match, ResponseKind, StepStatus
from pytrace.errors import InputError, MissingDependencyError, StoreError
from pytrace.kg import KnowledgeBase
from pytrace.models.scripted import HashEncoder
from pytrace.records import Triple
from pytrace.report.certificates import certificate_page
from pytrace.report.certificates.certificate_charts import save_plots
from pytrace.report.certificates.picture import Box, Picture, draw, text_width
from pytrace.report.certificates.response_page import page_rows
from pytrace.report.html_page import write_page

GOLD = (
    Triple("frederica_of_mecklenburg-strelitz", "spouse", "ernest_augustus_i_of_hanover"),
    Triple("ernest_augustus_i_of_hanover", "nationality", "united_kingdom"),
)
FACTS = [
    *GOLD,
    Triple("frederica_of_mecklenburg-strelitz", "cause_of_death", "pneumonia"),
    Triple("frederica_of_mecklenburg-strelitz", "parents", "charles_ii_grand_duke_of_mecklenburg-strelitz"),
    Triple("frederica_of_mecklenburg-strelitz", "place_of_birth", "hanover"),
    Triple("ernest_augustus_i_of_hanover", "religion", "anglicanism"),
    Triple("ernest_augustus_i_of_hanover", "children", "george_v_of_hanover"),
    Triple("ernest_augustus_i_of_hanover", "place_of_death", "herrenhausen"),
    Triple("ernest_augustus_i_of_hanover", "parents", "george_iii"),
    Triple("george_iii", "nationality", "united_kingdom"),
    Triple("george_iii", "place_of_birth", "london"),
    Triple("london", "contained_by", "united_kingdom"),
    Triple("united_kingdom", "capital", "london"),
    Triple("hanover", "contained_by", "germany"),
    Triple("germany", "capital", "berlin"),
    *(Triple(f"person_{number}", "nationality", "united_kingdom") for number in range(40)),
]
BASE = KnowledgeBase.in_memory(FACTS, HashEncoder())
SETTINGS = {"rule": "strict", "threshold": "0.7", "entity_threshold": "0.8", "encoder": "minilm-l6"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"quotes\" 'and' <!-- ]]> & \u202eשלום\u2028\x00 \ud800"


def step(number: int, status: StepStatus = "supported", *, text: str = "", follows: bool = True) -> CertifiedStep:
    """Return a step whose best triple is the one with a number, with figures that fit its status."""
    triple = BASE.named(number)
    good = status == "supported"
    values = (0.94, 0.88, 1.0, 0.95) if good else (0.61, 0.72, 0.42, 0.69)
    match = Match(number, triple, *values, head_found=good, tail_found=True, relation_cosine=0.81 if good else 0.44)
    other = (number + 1) % len(BASE)
    return CertifiedStep(
        text=text or f"{triple.head}'s {triple.relation} is {triple.tail}.",
        status=status,
        match=match,
        runner_up=Match(other, BASE.named(other), 0.58, 0.49, 0.7, 0.55, head_found=True, tail_found=False),
        entities=(triple.head, triple.tail) if good else (triple.tail,),
        follows=follows,
        reason="says the fact" if good else "the nearest fact has another head (ratio 0.42, needed 0.80)",
    )


def certificate(
    kind: ResponseKind = "faithful",
    error: ErrorKind | None = None,
    steps: tuple[CertifiedStep, ...] = (),
    *,
    right: bool | None = True,
    question: str = "Which nationality is Frederica of Mecklenburg-Strelitz's couple?",
    text: str | None = None,
    path: tuple[Triple, ...] = GOLD,
    name: str = "q",
) -> Certificate:
    written = (
        "\n".join(f"{number}. {one.text}" for number, one in enumerate(steps, 1)) + "\nSo the answer is (British)."
    )
    return Certificate(
        id=name,
        question=question,
        text=written if text is None else text,
        kind=kind,
        error=error,
        steps=steps,
        answer="United Kingdom" if right else "Germany",
        answers=() if right is None else ("united kingdom",),
        answer_correct=right,
        reached="united kingdom" if kind == "faithful" else "",
        edit_distance=None if not steps else 0 if kind == "faithful" else 1,
        edit_rate=None if not steps else 0.0 if kind == "faithful" else 0.5,
        gold_path=path,
        reason={"faithful": "all 2 steps are facts, connect, and end at United Kingdom"}.get(kind, "step 2 is no fact"),
    )


def examples() -> list[Certificate]:
    """Return one response of each kind and error, with none to four steps."""
    undecided = msgspec.structs.replace(
        step(5, "undecided"), text="She was known for her wisdom.", match=None, runner_up=None
    )
    return [
        certificate(steps=(step(0), step(1)), name="faithful"),
        certificate("unfaithful", "factual", (step(0), step(2, "unsupported")), name="factual"),
        certificate("unfaithful", "incoherent", (step(0), step(13, follows=False)), right=False, name="incoherent"),
        certificate("unfaithful", "answer", (step(0), step(8), step(10)), right=False, name="answer"),
        certificate("unfaithful", "factual", (step(0), step(5, "undecided"), undecided, step(9)), name="four"),
        certificate("abstained", right=None, text="I am sorry, I do not know.", name="abstained"),
        certificate("unstructured", right=False, text="British, I would say.", name="unstructured"),
    ]


def page_of(certificates: list[Certificate], **options: Any) -> str:
    return certificate_page(certificates, score_certificates(certificates), BASE, title="A test", **options)


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


VOID = {"area", "br", "hr", "img", "input", "link", "meta"}


class Outline(HTMLParser):
    """Collects tags, identifiers and text, and fails where an element is closed that is not the innermost."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_a_page_is_one_balanced_document_with_headings_in_order_and_labels_that_lead_somewhere() -> None:
    outline = Outline(page_of(examples(), settings=SETTINGS))
    names = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(names) == len(set(names))
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for _, attributes in outline.tags:
        assert set((attributes.get("aria-labelledby") or "").split()) <= set(names)
    for field in ("input", "select"):
        assert all(attributes["name"] for attributes in outline.all(field))
    assert "strict" in outline.text
    assert "7 responses" in outline.text


def test_a_page_asks_for_nothing_outside_itself_and_its_policy_lets_only_its_own_script_and_style_run() -> None:
    page = page_of(examples())
    outline = Outline(page)
    assert not re.search(r"https?:|//[\w.]+\.\w|@import|url\(", page)
    assert all("src" not in attributes and "style" not in attributes for _, attributes in outline.tags)
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in outline.tags)
    (policy,) = [one["content"] for one in outline.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_hostile_texts_stay_texts() -> None:
    hostile = certificate(
        steps=(step(0, text=HOSTILE),),
        question=HOSTILE,
        text=HOSTILE,
        path=(Triple(HOSTILE, HOSTILE, HOSTILE),),
        name=HOSTILE,
    )
    page = certificate_page(
        [hostile], score_certificates([hostile]), BASE, title=HOSTILE, settings={HOSTILE: HOSTILE}
    )  # fmt: skip
    page.encode()
    assert "\x00" not in page
    outline = Outline(page)
    assert len(outline.all("script")) == 2
    assert outline.all("img") == []
    (row,) = data_of(page)["rows"]
    shown = HOSTILE.replace("\ud800", "\ufffd").replace("\u202e", "\ufffd")  # which would turn the text behind it round
    assert row["question"] == row["text"] == row["steps"][0]["text"] == shown
    assert "\u202e" not in page
    assert html.unescape(page.partition("<title>")[2].partition("</title>")[0]).startswith("</script><script>alert(1)")


def test_the_same_certificates_give_the_same_page() -> None:
    assert page_of(examples()) == page_of(examples())


def test_a_page_of_nothing_says_so_and_shows_dashes() -> None:
    page = page_of([])
    assert "There is no response to certify." in page
    assert not re.search(r"\b(nan|none|inf)\b", Outline(page).text.replace("any or none", ""), re.IGNORECASE)
    assert data_of(page)["rows"] == []


def test_figures_that_are_no_numbers_are_dashes() -> None:
    nothing = SimpleNamespace(value=math.nan, low=math.nan, high=math.inf)
    scores = SimpleNamespace(precision=nothing, recall=nothing, f1=nothing)
    summary = SimpleNamespace(
        kinds={}, errors={}, steps={}, quadrants={}, answer=scores, reasoning=scores, gap=nothing,
        edit_rate=SimpleNamespace(mean=math.nan),
    )  # fmt: skip
    broken = step(0)
    assert broken.match is not None
    broken = msgspec.structs.replace(
        broken, match=msgspec.structs.replace(broken.match, cosine=math.nan, score=math.inf)
    )
    page = certificate_page(
        [certificate(steps=(broken,))],
        summary,
        BASE,
        title="",
        settings={"threshold": "NaN", "entity_threshold": "0,8"},
    )
    assert "NaN" not in page.replace("<dd>NaN</dd>", "")
    data = data_of(page)
    assert data["threshold"] is data["entityThreshold"] is None
    assert data["rows"][0]["steps"][0]["match"]["cosine"] is None
    assert data["rows"][0]["steps"][0]["match"]["head"] == 1.0


def test_the_head_line_and_the_plots_tell_the_figures_of_the_summary() -> None:
    text = " ".join(Outline(page_of(examples())).text.split())
    assert "1 reasons faithfully." in text
    assert "Factual error: 2 · 50.0%" in text
    assert "answer right and reasoning unfaithful: 2" in text
    assert "Without 2 that are undecided, abstain" in text
    assert data_of(page_of([], settings=SETTINGS))["entityThreshold"] == 0.8


def test_a_row_has_what_a_certificate_says_of_a_step() -> None:
    row = data_of(page_of([examples()[1]]))["rows"][0]
    second = row["steps"][1]
    assert (row["kind"], row["error"], row["right"], row["distance"]) == ("unfaithful", "factual", True, 1)
    assert second["status"] == "unsupported"
    assert second["match"]["triple"] == ["frederica of mecklenburg-strelitz", "cause of death", "pneumonia"]
    assert [second["match"][name] for name in ("score", "cosine", "head", "tail")] == [0.61, 0.72, 0.42, 0.69]
    assert second["runnerUp"]["triple"][1] == "parents"
    assert row["path"][1] == ["ernest augustus i of hanover", "nationality", "united kingdom"]


def test_a_long_response_is_kept_to_its_100000th_character_and_the_rest_is_counted() -> None:
    rows = list(page_rows([certificate(text="x" * 100_007)], BASE, pictures=0))
    assert (len(rows[0]["text"]), rows[0]["left"]) == (100_000, 7)


def test_many_long_responses_are_shortened_once_the_page_is_full() -> None:
    texts = ["x" * 100_000] * 250
    rows = list(page_rows([certificate(text=text) for text in texts], BASE, pictures=0))
    assert sum(len(row["text"]) for row in rows) < 21_000_000
    assert all(len(row["text"]) + row["left"] == 100_000 for row in rows)
    assert len(rows[-1]["text"]) == 2_000


def test_more_steps_and_answers_than_a_page_carries_are_counted() -> None:
    one = msgspec.structs.replace(certificate(steps=(step(0),) * 130), answers=("a",) * 70)
    (row,) = page_rows([one], BASE, pictures=1)
    assert (len(row["steps"]), row["moreSteps"], len(row["gold"]), row["moreGold"]) == (100, 30, 50, 20)


def test_pictures_are_drawn_for_the_first_responses_and_the_page_says_so() -> None:
    page = page_of(examples(), pictures=1)
    assert [row["picture"] is None for row in data_of(page)["rows"]] == [False] + [True] * 6
    assert "The graph is drawn for the first 1 responses only." in page
    with pytest.raises(InputError, match="-1 pictures"):
        page_of([], pictures=-1)


def drawn(one: Certificate) -> Picture:
    picture = draw(one, BASE)
    assert picture is not None
    return picture


def test_a_picture_shows_steps_and_gold_path_as_what_they_are() -> None:
    picture = drawn(examples()[1])
    edges = {edge.name: (edge.status, edge.gold) for edge in picture.edges if edge.status or edge.gold}
    assert edges == {
        "1: spouse": ("supported", True),
        "gold: nationality": (None, True),
        "2: cause of death": ("unsupported", False),
    }
    assert {node.name for node in picture.nodes if not node.leaf} == {
        "frederica of mecklenburg-strelitz", "ernest augustus i of hanover", "united kingdom", "pneumonia"
    }  # fmt: skip


def test_a_picture_has_at_most_12_other_facts_4_an_entity_each_with_an_end_of_its_own() -> None:
    leaves = [node.name for node in drawn(examples()[0]).nodes if node.leaf]
    assert len(leaves) == len(set(leaves)) == 3 + 3 + 4
    assert {"pneumonia", "anglicanism", "london"} <= set(leaves)
    path = tuple(Triple(f"stop {n}", "next", f"stop {n + 1}") for n in range(3))
    around = [Triple(one.head, "sells", f"{one.head} {number}") for one in path for number in range(9)]
    base = KnowledgeBase.in_memory([*around, *path, Triple("stop 0", "again", "stop 3")], HashEncoder())
    picture = draw(certificate(path=path), base)
    assert picture is not None
    names = [node.name for node in picture.nodes if node.leaf]
    assert [sum(name.startswith(one.head) for name in names) for one in path] == [4, 4, 4]


def test_a_path_that_is_no_fact_of_the_graph_is_drawn_by_its_names() -> None:
    picture = drawn(certificate(path=(Triple("new_zealand", "capitalOf", "wellington"),)))
    assert [node.name for node in picture.nodes] == ["new zealand", "wellington"]
    assert picture.edges[0].name == "gold: capital of"


def test_a_match_of_another_graph_is_drawn_by_its_names() -> None:
    one = step(0)
    assert one.match is not None
    foreign = msgspec.structs.replace(one.match, number=10**6, triple=Triple("a", "b", "c"))
    picture = drawn(certificate(steps=(msgspec.structs.replace(one, match=foreign),), path=()))
    assert [node.name for node in picture.nodes] == ["a", "c"]


def test_two_steps_on_one_triple_are_one_edge_that_is_supported_if_either_is() -> None:
    picture = drawn(certificate("unfaithful", "factual", (step(0), step(0, "unsupported")), path=()))
    assert [(edge.name, edge.status) for edge in picture.edges if edge.status] == [("1, 2: spouse", "supported")]


def test_there_is_no_picture_without_a_triple() -> None:
    assert draw(certificate("abstained", path=()), BASE) is None


SHAPES = {
    "a loop": (Triple("x", "r", "x"),),
    "two relations": (Triple("x", "r", "y"), Triple("x", "second relation", "y"), Triple("y", "third", "x")),
    "a triangle": (
        Triple("x", "first relation", "y"),
        Triple("y", "second relation", "z"),
        Triple("z", "third one", "x"),
    ),
    "two components": (Triple("x", "r", "y"), Triple("v", "s", "w")),
    "a star": tuple(Triple("x", f"relation {number}", f"end {number}") for number in range(4)),
    "four in a row": tuple(Triple(f"stop number {n}", "leads on to", f"stop number {n + 1}") for n in range(4)),
    "long names": (Triple("x" * 300, "y" * 300, "z" * 300), Triple("z" * 300, "日本語" * 30, "w" * 300)),
}


@pytest.mark.parametrize("path", [*SHAPES.values()], ids=[*SHAPES])
def test_nothing_in_a_picture_of_any_shape_covers_anything_else(path: tuple[Triple, ...]) -> None:
    assert covered(drawn(certificate(path=path))) == []


@pytest.mark.parametrize("place", range(5))
def test_nothing_in_a_picture_of_a_response_covers_anything_else(place: int) -> None:
    picture = drawn(examples()[place])
    assert covered(picture) == []
    assert all(0 < node.x < picture.width and 0 < node.y < picture.height for node in picture.nodes)
    assert all(0 < edge.x < picture.width and 0 < edge.y < picture.height for edge in picture.edges)


def covered(picture: Picture) -> list[tuple[str, str]]:
    """Return what overlaps by more than a letter's corner: boxes of entities, and labels that stand outside of boxes."""
    boxes = [(node.name, Box(node.x, node.y, node.width, 34 if node.leaf else 28)) for node in picture.nodes]
    boxes += [
        (edge.name, Box(edge.x, edge.y, text_width(edge.label), 14))
        for edge in picture.edges
        if edge.status is not None or edge.gold
    ]
    return [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2) if one.overlap(other) > 12]


@pytest.fixture(scope="module")
def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium on this machine; install it to see the page in a browser")
    return found


def opened(browser: str, path: Path, fragment: str = "", *options: str) -> tuple[str, str]:
    """Open a page without a window; return what became of its elements, and what the browser's console said."""
    profile = path.parent / "profile"
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
            "--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", *options, path.as_uri() + fragment,
        ],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    return done.stdout.decode(), "\n".join(console)


def listed(dom: str) -> list[int]:
    return [int(number) for number in re.findall(r'<details class="response"[^>]* data-number="(\d+)"', dom)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    certificates = [
        msgspec.structs.replace(one, id=f"{turn}-{one.id}", question=f"{one.question} ({turn})")
        for turn in range(20)
        for one in examples()
    ]
    hostile = certificate(steps=(step(0, text=HOSTILE),), question=HOSTILE, text=HOSTILE + "y" * 100_000, name=HOSTILE)
    certificates.append(hostile)
    summary = score_certificates(certificates)
    write_page(path, certificate_page(certificates, summary, BASE, title="140 responses", settings=SETTINGS))
    return path


def test_the_console_of_the_browser_is_heard(browser: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of([]).replace('"use strict";', '"use  strict";'), encoding="utf-8")
    _, console = opened(browser, path, "", "--dump-dom")
    assert "Content Security Policy" in console


def test_a_browser_lists_fifty_responses_at_a_time_without_an_error(browser: str, many: Path) -> None:
    dom, console = opened(browser, many, "", "--dump-dom")
    assert listed(dom) == list(range(1, 51))
    assert "1 to 50 of 141 responses" in dom
    assert "Page 1 of 3" in dom
    assert console == ""
    last, _ = opened(browser, many, "#page=3", "--dump-dom")
    assert listed(last) == list(range(101, 142))


@pytest.mark.parametrize(
    ("fragment", "kept"),
    [
        ("#error=factual", {2, 5}),
        ("#kind=abstained", {6}),
        ("#answer=wrong&kind=unfaithful", {3, 4}),
        ("#q=SORRY%20know", {6}),
        ("#kind=nonsense&page=1", {1, 2, 3, 4, 5, 6, 7}),
    ],
)
def test_a_browser_keeps_the_responses_that_the_address_asks_for(
    browser: str, many: Path, fragment: str, kept: set[int]
) -> None:
    dom, console = opened(browser, many, fragment, "--dump-dom")
    expected = [number for number in range(1, 141) if (number - 1) % 7 + 1 in kept]
    assert listed(dom) == (expected if "nonsense" not in fragment else [*expected, 141])[:50]
    assert console == ""


def test_a_browser_opens_a_response_with_its_steps_figures_and_graph(browser: str, many: Path) -> None:
    dom, console = opened(browser, many, "#open=2", "--dump-dom")
    assert console == ""
    assert dom.count('<li class="step">') == 2
    for words in (
        "not supported",
        "Nearest triple of the graph",
        "Next best (0.58)",
        "cause of death",
        "0.72",
        "step 2 is no fact",
    ):
        assert words in dom
    assert 'aria-label="Head 0.42, threshold 0.80"' in dom
    assert 'class="line unsupported"' in dom
    assert 'class="band"' in dom
    assert 'class="leaf"' in dom
    assert "Names found: <bdi>frederica of mecklenburg-strelitz</bdi>, <bdi>ernest" in dom
    assert "[object" not in dom
    assert "undefined" not in dom.partition("<script>")[0]


def test_a_browser_shows_hostile_texts_as_they_are_and_cuts_long_ones(browser: str, many: Path) -> None:
    dom, console = opened(browser, many, "#open=141", "--dump-dom")
    assert console == ""
    assert "&lt;img src=x onerror=alert(2)&gt;" in dom
    assert "<img" not in dom
    assert re.search(r"Show all 100,\d\d\d characters", dom)
    assert len(dom) < 2_000_000


@pytest.mark.parametrize("size", ["1280,900", "360,800"])
def test_a_browser_takes_a_picture_of_the_page(browser: str, many: Path, size: str, tmp_path: Path) -> None:
    shot = tmp_path / "page.png"
    opened(browser, many, "", f"--screenshot={shot}", f"--window-size={size}", "--hide-scrollbars")
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert shot.stat().st_size > 20_000


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    certificates = examples()
    summary = score_certificates(certificates)
    write_page(path, certificate_page(certificates, summary, BASE, title="First"))
    before = path.read_text(encoding="utf-8")
    assert before == certificate_page(certificates, summary, BASE, title="First")

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        write_page(path, certificate_page(certificates, summary, BASE, title="Second"))
    assert path.read_text(encoding="utf-8") == before
    assert list(tmp_path.iterdir()) == [path]


def test_plots_are_written_as_png_and_svg_even_with_a_formula_for_a_title(tmp_path: Path) -> None:
    paths = save_plots(score_certificates(examples()), tmp_path / "plots", title="$x^ <b> \ud800\n$ 日本")
    assert [path.name for path in paths] == ["errors.png", "errors.svg", "gap.png", "gap.svg"]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
    assert sorted(paths) == sorted((tmp_path / "plots").iterdir())


def test_a_folder_for_plots_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="name another one"):
        save_plots(score_certificates(examples()), tmp_path / "file")


def test_plots_show_only_what_there_is(tmp_path: Path) -> None:
    assert save_plots(score_certificates([]), tmp_path) == []
    no_gold: CertificationScores = score_certificates([certificate(steps=(step(0),), right=None)])
    assert [path.name for path in save_plots(no_gold, tmp_path)] == ["gap.png", "gap.svg"]


def test_a_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"pytrace-rag\[eval\]"):
        save_plots(score_certificates(examples()), tmp_path / "plots")
    assert not (tmp_path / "plots").exists()
