"""What reasoning models think aloud before they answer: found by its tags, and left out."""

from __future__ import annotations

import re

# The tags of reasoning models: <think> of DeepSeek-R1, Qwen3 and most others, [THINK] of Magistral, ◁think▷ of Kimi,
# <|begin_of_thought|> of Sky-T1, <|START_THINKING|> of Command A, <unused94> of MedGemma, <seed:think> of Seed-OSS, and those
# that prompts ask for. None where it stands in backticks, so that a response may speak of tags.
_NAMES = r"(?:seed:)?think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratchpad|analysis|antthinking|(?:inner_|internal_)?monologue|chain_of_thought"
_TAG = re.compile(
    rf"(?<!`)(?:(?P<open><(?:{_NAMES})(?:\s[^<>\n]{{0,200}})?>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>"
    r"|<unused94>(?:thought)?|<details\s+type=[\"']reasoning[\"'][^<>\n]{0,200}>)"
    rf"|(?P<close></(?:{_NAMES})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>|<unused95>|</details>))(?!`)",
    re.IGNORECASE,
)
# gpt-oss writes in channels; of these the final one is the response. Without its special tokens the names of channels are left.
_CHANNEL = re.compile(
    r"<\|channel\|>(?!final\b).*?(?=<\|channel\|>final\b|\Z)|\Aanalysis(?=[A-Z]).*?assistantfinal", re.DOTALL
)

_MAY_THINK = re.compile(r"[<◁]|\[/?think\]|\Aanalysis", re.IGNORECASE)


def thinking_spans(text: str) -> list[tuple[int, int]]:
    """Return where a response thinks aloud, as ``text[start:end]``, tags included, in order.

    What opens and is never closed goes on to the end: the response was cut off. What is closed and was never opened began
    with the response: the chat template had opened it.
    """
    spans: list[tuple[int, int]] = []
    if not _MAY_THINK.search(text):
        return spans
    depth = start = 0
    for tag in _TAG.finditer(text):
        if tag["open"]:
            start = start if depth else tag.start()
            depth += 1
        elif tag[0].lower() == "</details>" and not depth:
            continue
        elif depth > 1:
            depth -= 1
        else:
            spans = [*spans, (start, tag.end())] if depth else [(0, tag.end())]
            depth = 0
    if depth:
        spans.append((start, len(text)))
    spans += [found.span() for found in _CHANNEL.finditer(text) if not any(a <= found.start() < b for a, b in spans)]
    return sorted(spans)


def without_thinking(text: str) -> str:
    """Return a response without what it thinks aloud; "" where all of it is thinking.

    Examples
    --------
    >>> without_thinking("<think>Corfu is in Greece.</think>They speak Greek.")
    'They speak Greek.'
    """
    parts = []
    last = 0
    for start, end in thinking_spans(text):
        if start >= last:
            parts.append(text[last:start])
        last = max(last, end)
    return "".join([*parts, text[last:]]).strip() if last else text


def is_all_thinking(text: str) -> bool:
    """Say whether a response was cut off while the model was thinking aloud, or says nothing else."""
    return bool(thinking_spans(text)) and not without_thinking(text)
