"""The site builds without a warning, loads nothing from elsewhere, and its plots are those of the tables."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs_site.blocks import DOCS, ROOT

# What a browser loads by itself, and what it only follows when it is clicked.
LOADED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "embed": "src",
}


class Loads(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (name == LOADED.get(tag) or name == "srcset"):
                self.addresses.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built site, or skip with the reason."""
    for package in ("sphinx", "furo", "myst_parser", "sphinx_click"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; `make docs` has it")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet",
            "--doctree-dir", str(folder / "doctrees"), str(DOCS), str(folder / "html"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_site_builds_with_every_page_in_its_contents(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in (*DOCS.glob("*.md"), *DOCS.glob("reference/*")):
        address = page.relative_to(DOCS).with_suffix(".html").as_posix()
        assert (site / address).is_file(), address
        assert address == "index.html" or f'href="{address}"' in home, address


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    foreign = []
    pages = list(site.rglob("*.html"))
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.addresses
        foreign += [(page.name, address) for address in loads.addresses if re.match(r"([a-z]+:)?//", address)]
    for style in site.rglob("*.css"):
        foreign += [
            (style.name, found)
            for found in re.findall(r"url\([\"']?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*", style.read_text())
        ]
    assert foreign == []
    assert len(pages) > 35


def test_the_reference_has_what_it_is_made_of(site: Path) -> None:
    front_door = (site / "reference" / "front-door.html").read_text(encoding="utf-8")
    assert all(f'id="pytrace.{name}"' in front_door for name in ("load", "Engine.ask", "Corpus.search", "Certifier"))
    commands = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert 'id="cmdoption-pytrace-index-build-docs"' in commands
    settings = (site / "reference" / "settings.html").read_text(encoding="utf-8")
    assert "link_weight" in settings
    assert re.search(r"search|terms", (site / "searchindex.js").read_text(encoding="utf-8")[:2000])


def test_plots_are_drawn_of_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("plots", ROOT / "tools" / "plots.py")
    assert spec is not None
    assert spec.loader is not None
    plots = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plots)
    monkeypatch.setattr(plots, "IMAGES", tmp_path)
    plots.main()
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(drawn) == 4
    for name, text in drawn.items():
        assert text == (DOCS / "images" / name).read_text(), f"{name}: run python tools/plots.py"
