"""A second reading of the grammars that have no recursion: as regular expressions, which share no code with llama.cpp."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{\d+,\d+\}|[()|?*+]|[\w-]+')


def as_regex(grammar: str) -> str:
    """Return a pattern that matches what the grammar accepts."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.split("\n"))
    patterns: dict[str, str] = {}

    def expand(name: str) -> str:
        if name not in patterns:
            parts = [part(token) for token in _TOKEN.findall(rules[name])]
            patterns[name] = f"(?:{''.join(parts)})"
        return patterns[name]

    def part(token: str) -> str:
        if token[0] == '"':
            return f"(?:{re.escape(_literal(token[1:-1]))})"
        if token == "(":
            return "(?:"
        return expand(token) if re.fullmatch(r"[\w-]+", token) else token

    return expand("root")


def _literal(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "r": "\r"}.get(match[1], match[1]), text)
