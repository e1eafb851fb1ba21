"""Every block of code in README.md and docs/*.md is run, or says in the source why it is not."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from pytrace.cli import common, configuration, program
from tests.docs_site.blocks import DOCS, PAGES, ROOT, Block, blocks, call_of_program, commands, parse

SHELL = {"sh", "console"}
# Read by people, or by programs that are not here.
OTHERS = {"caddy", "nginx", "text", "{eval-rst}", "{method-settings}"}
# Blocks that tests of their own run: tests/engine/test_front_door.py, tests/integrations/test_docs.py and tests/serve/test_docs.py,
# which has curl ask a real service.
ELSEWHERE = {("README.md", "python"), ("integrations.md", "python"), ("service.md", "sh")}
# What pages call the reader's own, and what stands for it here.
GIVEN = {
    "papers": "docs",
    "facts.ttl": "facts.ttl",
    "responses.jsonl": "responses.jsonl",
}


def all_blocks(*languages: str) -> list[Block]:
    return [block for block in chain.from_iterable(map(blocks, PAGES)) if block.language in languages]


def test_every_block_has_a_language_that_the_tests_know_what_to_do_with() -> None:
    known = {"python", "json", "toml", "yaml"} | SHELL | OTHERS
    assert [block.place for page in PAGES for block in blocks(page) if block.language not in known] == []
    assert len(all_blocks("python")) > 20
    assert len(all_blocks(*SHELL)) > 50


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- not run: -->\n```sh\nls\n```\n", "does not say why"),
        ("<!-- not run: takes hours -->\n\n```sh\nls\n```\n", "directly below"),
        ("<!--not run: takes hours -->\n```sh\nls\n```\n", "write <!-- not run"),
        ("```python notest\nx\n```\n", "more than a language"),
        ("A call:\n\n    pytrace ask\n", "must be fenced"),
    ],
)
def test_a_block_that_cannot_be_read_or_hides_why_it_is_not_run_is_an_error(
    text: str, said: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError, match=said):
        list(blocks(page))


def test_blocks_that_are_not_run_by_the_program_say_why() -> None:
    unmarked = [
        block.place
        for block in all_blocks(*SHELL)
        if not block.reason and (block.page.name, block.language) not in ELSEWHERE
        for words in commands(block)
        if words[0] != "pytrace"
    ]
    assert unmarked == []


def test_python_is_python() -> None:
    for block in all_blocks("python"):
        compile(block.text, block.place, "exec")


def test_data_is_what_it_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in all_blocks("json"):
        json.loads(block.text)
    for block in all_blocks("yaml"):
        yaml.safe_load(block.text)
    for block in all_blocks("toml"):
        path = tmp_path / "pytrace.toml"
        path.write_text(block.text)
        monkeypatch.setenv("PYTRACE_CONFIG", str(path))
        (file,) = configuration.files()
        assert set(tomllib.loads(block.text)) <= {said.partition(".")[0] for said in configuration.check(program, file)}


def test_the_program_takes_every_call_in_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/tuned").mkdir(parents=True)
    Path("runs/tuned/settings.json").write_text('{"settings": []}')  # read while a call is parsed
    refused = []
    calls = 0
    for block in all_blocks(*SHELL):
        for words in commands(block):
            if arguments := call_of_program(words):
                calls += 1
                # What that page's calls leave out stands in the file that they name.
                on_premises = block.page.name == "on-premises.md"
                monkeypatch.setenv("PYTRACE_CONFIG", str(ROOT / "deploy/pytrace.toml") if on_premises else os.devnull)
                try:
                    parse(arguments)
                except click.UsageError as error:
                    refused.append(f"{block.place}: {' '.join(words)}: {error.message}")
            assert arguments or words[0] != "pytrace", f"{block.place}: there is no command {words[1:2]}"
    assert refused == []
    assert calls > 80


def test_the_program_knows_the_commands_and_options_that_sentences_name() -> None:
    refused = []
    for page in PAGES:
        for call in re.findall(r"(?<!`)`pytrace ([a-z][^`]*)`(?!`)", page.read_text(encoding="utf-8")):
            try:
                parse(call.replace("\n", " ").replace("|", " ").replace("'", "").replace('"', "").split())
            except click.NoSuchOption as error:
                refused.append(f"{page.name}: {call}: {error.message}")
            except click.UsageError as error:  # an argument may be left out
                if "there is no command" in error.message:
                    refused.append(f"{page.name}: {call}: {error.message}")
    assert refused == []


def runnable(page: Path) -> list[Block]:
    return [
        block
        for block in blocks(page)
        if block.language in {"python"} | SHELL and not block.reason and (page.name, block.language) not in ELSEWHERE
    ]


def shown_below(block: Block) -> list[str]:
    """Return the lines that a page shows directly below a block as what it prints, without those that stand for others."""
    end = block.line + block.text.count("\n") + 1
    shown = [each.text for each in blocks(block.page) if each.language == "text" and each.line == end + 2]
    return [line for text in shown for line in text.splitlines() if line != "…"]


def written_by_model(block: Block) -> bool:
    """Tell whether a block prints a language model's answer, which another processor's rounding may turn."""
    return block.language in SHELL and any(words[1] == "ask" and "--claim" not in words for words in commands(block))


def without_places(text: str) -> str:
    """Return a text without the decimals of its numbers, which processors round in their own ways."""
    return re.sub(r"\d+\.\d+", "0", text)


@pytest.mark.models
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_one_after_the_other(
    page: Path,
    tiny_models: dict[str, Path],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, given in GIVEN.items():
        (tmp_path / name).symlink_to(tmp_path / "examples" / given)
    (tmp_path / "model.gguf").symlink_to(tiny_models["language-model"])
    monkeypatch.chdir(tmp_path)
    # Passages that several pages have are encoded once.
    monkeypatch.setenv("PYTRACE_VECTOR_CACHE", str(tmp_path_factory.getbasetemp() / "vectors"))
    names: dict[str, Any] = {"__name__": page.stem}
    try:
        for block in runnable(page):
            said = ""
            if block.language == "python":
                exec(compile("\n" * block.line + block.text, page.name, "exec"), names)  # noqa: S102 (our own pages)
                said = capfd.readouterr().out
            for words in commands(block) if block.language in SHELL else ():
                status = common.run(program, words[1:])
                printed = capfd.readouterr()
                assert status == 0, f"{block.place}: {' '.join(words)}: {printed.err}"
                said += printed.out
            if not written_by_model(block):
                said = without_places(said.replace(str(tmp_path), "…"))
                lacking = [line for line in shown_below(block) if without_places(line) not in said]
                assert lacking == [], f"{block.place} prints no longer what is shown below it"
    finally:
        if "engine" in names:
            names["engine"].close()


LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as repositories' browsers and the site make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    }


def test_links_between_files_lead_somewhere() -> None:
    broken = []
    for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "benches" / "RESULTS.md"):
        for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            path = page.parent / target if target else page
            there = path.exists() and (not anchor or anchor in anchors(path))
            if not there:
                broken.append(f"{os.path.relpath(page, ROOT)}: {target}#{anchor}")
    assert broken == []
