"""What `--help` says: every command explains itself in more than its first sentence where it has more to say."""

from __future__ import annotations

import pytest

from pytrace.cli import common, program


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("ask", "no language model extracts them again"),
        ("bench", "A wrong answer ends the run"),
        ("certify", "a response is faithful if all"),
        ("kg build", "a killed build goes on with --resume"),
        ("models fastest", "llama.cpp's own quantiser"),
        ("perturb", "and not before"),
        ("report", "one page that needs no network"),
        ("train query-generator", "query-generator.gguf"),
    ],
)
def test_a_command_explains_what_it_does(command: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert common.run(program, [*command.split(), "--help"]) == 0
    assert says in " ".join(capsys.readouterr().out.split())
