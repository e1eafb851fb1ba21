"""The page at / in a browser, against a real service: what people see, click, type and hear."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.serve.service_process import EXAMPLES, ServiceProcess, build_index, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

FOLDER = Path(__file__).parents[2] / "pytrace" / "serve" / "explorer"
QUESTION = "Who founded the foundry that cast the bell of the Lady Addle?"
STAGES = ["search", "evidence", "answer"]
KEY = "a-key-of-the-tests"

# What a browser would ask others for by itself, and a display that is not there.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return the machine's Chromium, or skip with what is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright; `make test` installs it")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on this machine; install it to see the page in a browser")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(_ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Path:
    del tiny_models
    folder = tmp_path_factory.mktemp("explorer") / "docs.index"
    return build_index(folder, EXAMPLES / "ships.csv", EXAMPLES / "companies", EXAMPLES / "office")


@pytest.fixture(scope="module")
def service(index: Path) -> Iterator[ServiceProcess]:
    with served(index, log=index.parent / "service.log") as process:
        yield process


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Return what opens the page; in the end nothing stands in its console, and nothing was asked of any other host."""
    complaints: list[str] = []
    requests: list[str] = []
    contexts = []

    def opened(address: str, width: int = 1280, height: int = 900, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)  # the first answer takes long where other tests have the cores
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        return page

    yield opened
    hosts = {urlsplit(address).hostname for address in requests if not address.startswith(("blob:", "data:"))}
    for context in contexts:
        context.close()
    # A browser tells of each refusal by itself, which tests of refusals are about.
    refusal = re.compile(r"Failed to load resource: the server responded with a status of (400|401|429|502)")
    assert not [text for text in complaints if not refusal.match(text)]
    assert hosts == {"127.0.0.1"}


def ask(page: Page, question: str = QUESTION, *, button: str = "#submit") -> None:
    page.fill("#question", question)
    page.click(button)
    page.wait_for_selector("[data-slot=answer] .answer" if button == "#submit" else "[data-slot=passages] h2")


def nodes(page: Page) -> list[dict[str, Any]]:
    """Return the data and places of what the graph shows."""
    expression = """document.querySelector('.graph').cy.nodes().map((node) => {
        const box = document.querySelector('.graph').getBoundingClientRect(), at = node.renderedPosition();
        return { ...node.data(), left: box.x + at.x, top: box.y + at.y };
    })"""
    found: list[dict[str, Any]] = page.evaluate(expression)
    return found


def hangs_over(page: Page) -> int:
    width: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width


def focused(page: Page, attribute: str = "id") -> str:
    found: str = page.evaluate(f"document.activeElement.{attribute}")
    return found


def drop(page: Page, name: str, text: str) -> None:
    """Drop a file on the page."""
    carried = page.evaluate_handle(
        "([name, text]) => { const data = new DataTransfer(); data.items.add(new File([text], name)); return data; }",
        [name, text],
    )
    page.dispatch_event("body", "dragenter", {"dataTransfer": carried})
    assert page.is_visible("#drop")
    page.dispatch_event("body", "drop", {"dataTransfer": carried})
    assert page.is_hidden("#drop")


@pytest.mark.models
def test_the_stages_of_an_answer_arrive_in_order_with_their_times(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    page.evaluate("""() => {
        window.arrived = [];
        window.heard = [];
        new MutationObserver((changes) => {
            for (const { target } of changes) if (target.dataset.state === "done") window.arrived.push(target.dataset.stage);
        }).observe(document.getElementById("results"), { subtree: true, attributeFilter: ["data-state"] });
        new MutationObserver(() => window.heard.push(document.getElementById("announcer").textContent))
            .observe(document.getElementById("announcer"), { childList: true });
    }""")
    ask(page)
    assert page.evaluate("window.arrived") == STAGES
    assert [re.split(r"\W", text)[0].lower() for text in page.evaluate("window.heard")] == STAGES
    assert all(re.fullmatch(r"\d.* (ms|s)", time) for time in page.locator(".stages .time").all_inner_texts())
    assert page.inner_text(".answer-text")
    assert "hops" in page.inner_text(".answer > .place")


@pytest.mark.models
def test_a_question_without_an_answer_shows_the_closest_passages(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    ask(page, "What is the capital of France?")
    assert page.inner_text(".answer-text") == "No answer found in these documents."
    assert "Closest passages:" in page.inner_text(".answer")
    rows = page.locator(".answer .row").all_inner_texts()
    assert 0 < len(rows) <= 3
    assert all(len(row.splitlines()) >= 3 for row in rows)  # title, text, location
    assert page.locator(".answer .confidence").count() == 0
    assert page.locator("[data-slot=chains] *").count() == 0
    # What was withheld is for those who open the details.
    details = page.locator("details.details")
    assert details.get_attribute("open") is None
    details.locator("summary").click()
    assert "Not given: “" in details.inner_text()
    ask(page, "Thanks!")
    assert "not a question" in page.inner_text(".answer-text")
    assert page.locator(".stages [data-state=skipped]").count() == 2


@pytest.mark.models
def test_found_passages_show_their_text_with_the_words_of_the_question(
    service: ServiceProcess, open_page: Open
) -> None:
    page = open_page(service.url)
    ask(page, button="#search-only")
    rows = page.locator("[data-slot=passages] .row")
    assert rows.count() == 5
    bold = {text.lower() for text in page.locator("[data-slot=passages] .excerpt b").all_inner_texts()}
    assert {"lady", "addle", "bell", "foundry"} <= bold
    assert not bold & {"the", "of", "that", "who"}
    page.click("[data-slot=passages] .link")
    assert rows.count() == 10
    numbers = re.compile(r"probability|\d\.\d|characters")
    assert not numbers.search(page.inner_text("#results [data-slot=chains]") + page.inner_text("[data-slot=passages]"))
    # A long text is shown from shortly before the first word that matches.
    script = """async (place) => (await import(place)).excerpt("Nothing here. ".repeat(30) + "The bells rang.", "the bell?")
        .map((part) => part.outerHTML ?? part).join("")"""
    place = page.evaluate("document.querySelector('script[type=module]').src").rpartition("/")[0] + "/passages.js"
    shown = page.evaluate(script, place)
    assert shown.startswith("… ")
    assert shown.endswith("The <b>bells</b> rang.")
    assert len(shown) < 120


@pytest.mark.models
def test_the_words_of_an_answer_are_marked_and_open_their_document(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    ask(page)
    assert page.inner_text(".answer mark.here >> nth=0").lower() == page.inner_text(".answer-text").lower()
    certainty, percentage = re.fullmatch(r"Confidence: (\w+) \((\d+) %\)", page.inner_text(".confidence")).groups()  # type: ignore[union-attr]
    assert certainty == ("high" if int(percentage) >= 75 else "medium" if int(percentage) >= 50 else "low")
    assert certainty in (page.get_attribute("[data-slot=answer] section", "class") or "")
    colours = {"high": "good", "medium": "open", "low": "soft"}
    probe = "(name) => { const e = document.createElement('i'); e.style.color = `var(--${name})`; document.body.append(e); return getComputedStyle(e).color; }"
    shown = page.eval_on_selector(".answer-text", "found => getComputedStyle(found).color")
    assert shown == page.evaluate(probe, colours[certainty])
    sentence = page.inner_text(".answer q >> nth=-1").strip("“”")
    page.click(".answer button.step >> nth=-1")
    page.wait_for_selector("#reader mark.here")
    assert page.inner_text("#reader mark.here") == sentence


@pytest.mark.models
def test_chains_are_a_list_and_the_same_as_a_graph(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    ask(page)
    listed = page.eval_on_selector_all("#results [data-passage]", "found => found.map(e => e.dataset.passage)")
    shown = nodes(page)
    assert len(listed) >= 2
    assert {f"passage:{passage}" for passage in listed} <= {node["id"] for node in shown}
    assert {node["kind"] for node in shown} == {"question", "passage", "answer"}
    columns = {node["kind"]: node["column"] for node in shown}
    assert columns["question"] == 0
    assert columns["answer"] == max(node["column"] for node in shown)
    assert page.get_attribute("[data-slot=chains] .figure", "aria-hidden") == "true"
    names = page.evaluate("document.querySelector('.graph').cy.edges().map((edge) => edge.data('label'))")
    assert "Orrin Bell Foundry" in names


@pytest.mark.models
def test_a_step_opens_its_document_with_the_sentence_marked(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    ask(page, button="#search-only")
    step = page.locator("[data-slot=chains] button.step").nth(1)
    step.click()
    page.wait_for_selector("#reader mark.here")
    assert page.inner_text("#reader mark.here") == step.locator("q").inner_text().strip("“”")
    assert page.inner_text("#reader h2") in step.inner_text()
    assert focused(page) == "reader-title"
    page.keyboard.press("Escape")
    assert page.is_hidden("#reader")
    assert focused(page, "className") == "step"


@pytest.mark.models
def test_a_node_of_the_graph_opens_its_document(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    ask(page, button="#search-only")
    page.locator(".graph").scroll_into_view_if_needed()
    node = next(node for node in nodes(page) if node["kind"] == "passage")
    page.mouse.click(node["left"], node["top"])
    page.wait_for_selector("#reader mark.here")
    assert page.inner_text("#reader h2") == node["label"]


@pytest.mark.models
def test_neighbours_come_into_the_list_and_the_graph_and_leave_again(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    ask(page, button="#search-only")
    before = len(nodes(page))
    page.click("[data-slot=chains] .thread .link >> nth=0")
    page.wait_for_selector(".neighbours .row")
    assert "name" in page.inner_text(".neighbours .row-facts >> nth=0")
    assert "neighbour" in {node["kind"] for node in nodes(page)}
    page.click(".neighbours .row >> nth=0")
    page.wait_for_selector("#reader .passage.here")
    page.keyboard.press("Escape")
    page.click(".neighbours .link")
    assert len(nodes(page)) == before


@pytest.mark.models
def test_certificates_say_in_words_what_their_colours_say(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    page.check("#check")
    ask(page)
    page.wait_for_selector(".certified")
    badges = page.locator(".certified .badge").all_inner_texts()
    assert badges
    assert {badge.split()[1] for badge in badges} <= {"Supported", "Unsupported", "Undecided", "Contradicted", "Not"}
    assert page.locator(".answer .verdicts .badge").count() == page.locator(".certificate").count()
    # A claim that shares no word with any sentence has no place to show.
    bare = {"label": "not there", "text": "Zorblat.", "reason": "no sentence shares a word with it", "evidence": []}
    script = "async ([place, claim]) => (await import(place)).claimsSection([claim]).textContent"
    place = page.evaluate("document.querySelector('script[type=module]').src").rpartition("/")[0] + "/certificates.js"
    assert "? Not there Zorblat." in page.evaluate(script, [place, bare])


@pytest.mark.models
def test_history_outlives_a_reload_and_asks_nothing_anew(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    ask(page)
    answer, steps = page.inner_text(".answer-text"), page.inner_text(".answer .thread")
    page.reload()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.click("#open-history")
    assert answer in page.inner_text("#history .row")
    page.click("#history .row")
    assert page.inner_text(".answer-text") == answer
    assert page.inner_text(".answer .thread") == steps
    assert len(nodes(page)) >= 4
    assert page.locator(".stages [data-state=done]").count() == 2  # what was read is the answer's
    assert not [address for address in asked if address.endswith(("/v1/ask", "/v1/search"))]
    page.click("#history .tools button")
    page.click("#history .danger")
    assert "No questions yet" in page.inner_text("#history")
    assert page.evaluate("localStorage.getItem('pytrace.history:/')") is None


@pytest.mark.models
def test_a_dropped_file_is_indexed_found_read_and_removed(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    drop(page, "zorblat.md", "# The Zorblat\n\nThe Zorblat is a clock of brass. It was wound by <b>Ilse Kray</b>.\n")
    page.wait_for_selector(".uploads [data-state=done]")
    assert "1 document added." in page.inner_text(".uploads")
    page.fill("#filter", "zorblat")
    row = page.locator("#documents .rows li")
    page.wait_for_selector("#documents .rows li:only-child")
    row.locator(".row").click()
    page.wait_for_selector("#reader .text")
    assert "Ilse Kray" in page.inner_text("#reader .text")
    page.keyboard.press("Escape")
    assert page.is_visible("#documents")
    ask(page, "Who wound the Zorblat?", button="#search-only")
    assert "Zorblat" in page.inner_text("[data-slot=chains] .step >> nth=0")
    row.locator(".link").click()
    assert focused(page, "textContent") == "Keep"
    page.keyboard.press("Escape")
    assert page.is_visible("#documents")
    row.locator(".link").click()
    page.click("#documents .danger")
    page.wait_for_selector("#documents .empty")
    assert "No document matches" in page.inner_text("#documents .list")
    assert service.get("/v1/documents?query=zorblat")["total"] == 0


@pytest.mark.models
def test_a_file_that_cannot_be_read_says_why_and_the_next_is_added(
    service: ServiceProcess, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(service.url)
    page.click("#open-documents")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 and no more")
    (tmp_path / "sound.txt").write_text("The Quarl is a bell of tin.", encoding="utf-8")
    page.set_input_files("#files", [tmp_path / "broken.pdf", tmp_path / "sound.txt"])
    page.wait_for_selector(".uploads [data-state=failed]")
    page.wait_for_selector(".uploads [data-state=done]")
    assert "broken.pdf" in page.inner_text(".uploads [data-state=failed]")
    [document] = service.get("/v1/documents?query=sound")["documents"]
    assert service.request("DELETE", f"/v1/documents?id={document['id']}")[0] == 200


@pytest.mark.models
def test_text_of_documents_is_never_html(service: ServiceProcess, open_page: Open) -> None:
    hostile = "<img src=x onerror=document.title='taken'>"
    given = {"title": f"Vexil {hostile}", "text": f"The Vexil is a flag {hostile} of linen."}
    [id_] = service.post("/v1/documents", {"documents": [given]})["ids"]
    page = open_page(service.url)
    ask(page, "What is the Vexil?", button="#search-only")
    page.click("[data-slot=chains] .step >> nth=0")
    page.wait_for_selector("#reader .text")
    assert hostile in page.inner_text("#reader .text")
    assert page.locator("img").count() == 0
    assert page.title() == "pytrace explorer"
    service.request("DELETE", f"/v1/documents?id={id_}")


@pytest.mark.models
def test_a_page_of_a_pdf_stands_beside_its_text(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    page.click("#open-documents")
    page.fill("#filter", "treaty")
    page.click("#documents .row:has-text('Treaty of Nethercove')")
    picture = page.wait_for_selector("#reader .picture img")
    assert picture is not None
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
    assert (picture.get_attribute("src") or "").startswith("blob:")
    assert "Page 1 of" in (picture.get_attribute("alt") or "")
    text, beside = page.locator("#reader .text").bounding_box(), picture.bounding_box()
    assert text is not None
    assert beside is not None
    assert beside["x"] + beside["width"] <= text["x"] + 1


@pytest.mark.models
def test_a_key_is_asked_for_kept_in_the_tab_and_sent(index: Path, open_page: Open) -> None:
    with served(index, log=index.parent / "keyed.log", environment={"PYTRACE_API_KEY": KEY}, wait_ready=False) as keyed:
        page = open_page(keyed.url)
        page.fill("#key-field", "no key")
        page.keyboard.press("Enter")
        page.wait_for_selector("#key-problem:not([hidden])")
        page.fill("#key-field", KEY)
        page.keyboard.press("Enter")
        page.wait_for_selector("#facts:has-text('document')")
        page.reload()
        page.wait_for_selector("#facts:has-text('document')")
        assert page.is_hidden("#key")
        page.click("#open-documents")
        page.fill("#filter", "treaty")
        page.click("#documents .row:has-text('Treaty of Nethercove')")
        page.wait_for_selector("#reader .picture img")
        assert page.evaluate("localStorage.getItem('pytrace.key')") is None


@pytest.mark.models
def test_a_busy_service_says_when_to_try_again(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    busy = '{"error": {"message": "Too many questions wait.", "type": "busy", "request_id": "r-1"}}'
    page.route(
        "**/v1/search",
        lambda route: route.fulfill(
            status=429, headers={"Retry-After": "1"}, content_type="application/json", body=busy
        ),
    )
    page.fill("#question", QUESTION)
    page.click("#search-only")
    again = page.locator(".notice button")
    assert "busy" in page.inner_text(".notice")
    assert again.is_disabled()
    page.unroute("**/v1/search")
    page.wait_for_selector(".notice button:enabled")
    again.click()
    page.wait_for_selector("[data-slot=chains] h2")


@pytest.mark.models
def test_a_question_is_cancelled_and_can_be_asked_again(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    page.route("**/v1/ask", lambda _: None)  # which is never answered
    page.fill("#question", QUESTION)
    page.click("#submit")
    assert focused(page) == "cancel"
    page.keyboard.press("Enter")
    page.wait_for_selector(".notice:has-text('Cancelled')")
    assert page.get_attribute(".stages li >> nth=0", "data-state") == "cancelled"
    assert focused(page) == "submit"
    page.unroute("**/v1/ask")
    page.click(".notice button")
    page.wait_for_selector(".answer-text")


@pytest.mark.models
def test_a_service_that_is_gone_is_told_of_in_words(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    page.route("**/v1/search", lambda route: route.fulfill(status=502, body="<html>bad gateway</html>"))
    page.fill("#question", QUESTION)
    page.click("#search-only")
    page.wait_for_selector(".notice.bad")
    assert "502" in page.inner_text(".notice.bad")


@pytest.mark.models
def test_read_only_services_offer_no_changes(service: ServiceProcess, open_page: Open) -> None:
    page = open_page("about:blank")

    def locked(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "read_only": True})

    page.route("**/v1/info", locked)
    page.goto(service.url)
    page.wait_for_selector("#facts:has-text('document')")
    page.click("#open-documents")
    page.wait_for_selector("#documents .row")
    assert page.locator("#files").count() == 0
    assert page.locator("#documents button:has-text('Remove')").count() == 0


@pytest.mark.models
def test_nothing_hangs_over_the_edge_of_a_phone(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url, 360, 740)
    assert hangs_over(page) == 0
    page.check("#check")
    ask(page)
    assert hangs_over(page) == 0
    tops = {node["column"]: node["top"] for node in nodes(page)}
    assert [tops[column] for column in sorted(tops)] == sorted(tops.values())
    page.click(".answer .step >> nth=-1")
    page.wait_for_selector("#reader mark.here")
    assert page.locator("#reader").bounding_box() == {"x": 0, "y": 0, "width": 360, "height": 740}
    assert page.evaluate("document.getElementById('main').inert")
    assert hangs_over(page) == 0
    page.keyboard.press("Escape")
    page.click("#open-documents")
    page.wait_for_selector("#documents .row")
    assert hangs_over(page) == 0


@pytest.mark.models
def test_dark_is_what_the_system_says_or_what_was_chosen(service: ServiceProcess, open_page: Open) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page = open_page(service.url, color_scheme="dark")
    assert page.evaluate(background) == "rgb(20, 23, 26)"
    page = open_page(service.url)
    assert page.evaluate(background) == "rgb(246, 244, 239)"
    page.click("#theme")
    assert page.evaluate(background) == "rgb(20, 23, 26)"
    page.reload()
    assert page.evaluate(background) == "rgb(20, 23, 26)"
    assert page.get_attribute("#theme", "aria-label") == "Colours: dark"


@pytest.mark.models
def test_all_of_it_works_with_keys_alone(service: ServiceProcess, open_page: Open) -> None:
    page = open_page(service.url)
    page.wait_for_selector("#facts:has-text('document')")
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(focused(page))
    assert reached[1:] == [
        "open-history",
        "open-documents",
        "theme",
        "question",
        "method",
        "check",
        "search-only",
        "submit",
    ]
    page.keyboard.press("/")
    assert focused(page) == "question"
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer-text")
    while not page.evaluate("document.activeElement.matches('.answer button.step')"):
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector("#reader mark.here")
    page.keyboard.press("Escape")
    assert focused(page, "className") == "step"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".neighbours .row")


def _colours() -> dict[str, tuple[str, str]]:
    style = (FOLDER / "explorer.css").read_text(encoding="utf-8")
    return {name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", style)}


def _luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("colour", "behind", "least"),
    [
        ("ink", "page card inset tint mark", 4.5),
        ("soft", "page card inset tint", 4.5),
        ("accent", "page card inset", 4.5),
        ("accent-ink", "accent", 4.5),
        ("good", "card inset", 4.5),
        ("bad", "page card inset", 4.5),
        ("open", "card", 4.5),
        ("none", "page card inset", 3),  # borders of what can be used
    ],
)
def test_colours_stand_out_as_wcag_asks(colour: str, behind: str, least: float) -> None:
    colours = _colours()
    for other in behind.split():
        for own, its in zip(colours[colour], colours[other], strict=True):
            lighter, darker = sorted((_luminance(own), _luminance(its)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= least, (colour, other)


def test_the_page_has_nothing_inline_and_reads_nothing_as_html() -> None:
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    assert not re.search(r'(?:src|href)="(?:https?:)?/', page)
    for script in FOLDER.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            script
        )
        assert len(text.splitlines()) <= 400, script


def test_the_vendored_library_is_the_version_that_is_named() -> None:
    [version] = re.findall(r"Cytoscape\.js ([\d.]+)", (FOLDER / "index.html").read_text(encoding="utf-8"))
    assert f'"{version}"' in (FOLDER / "vendor" / "cytoscape.min.js").read_text(encoding="utf-8")
    assert "Cytoscape Consortium" in (FOLDER / "vendor" / "LICENSE.cytoscape").read_text(encoding="utf-8")
