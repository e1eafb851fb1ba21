"""Markdown, HTML and LaTeX as chat models write them: their marks, and a text without these."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytrace.reader.conclusions import ANSWER_LABEL, FOREIGN_STEP, conclusion_words

SPECIAL_TOKEN = re.compile(
    r"<\|[A-Za-z_]{1,40}\|>(?:(?:assistant|analysis|commentary|final)\b)?|</?s>|</?(?:response|output|solution|final)>",
    re.IGNORECASE,
)
ANSWER_TAG = re.compile(r"<(?P<closing>/?)(?:final_)?answer>", re.IGNORECASE)
FENCE = re.compile(
    r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
PROSE = frozenset({"", "text", "txt", "plaintext", "markdown", "md", "json", "jsonc", "json5"})
HTML = re.compile(
    r"</?(?:a|b|br|center|details|div|em|h[1-6]|hr|i|li|mark|ol|p|small|span|strong|sub|summary|sup|u|ul)\b[^<>\n]{0,200}>",
    re.IGNORECASE,
)
# Footnotes and citations: [1], [2, 3], [^1], 【4†source】.
CITATION = re.compile(r"[ \t]?\[\^?\d{1,3}(?:\s?[,–-]\s?\d{1,3}){0,9}\](?!\()|[ \t]?【[^【】\n]{0,80}】")
RULE = re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$", re.MULTILINE)
TABLE_RULE = re.compile(r"^[ \t]*(?:\|[ \t]*)?:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*(?:\|[ \t]*)?$", re.MULTILINE)
EMPHASIS = re.compile(
    r"\*{1,3}(?=[^\s*])(?P<stars>[^*\n]{0,2000}?[^\s*])\*{1,3}|(?<!\w)(?P<mark>_{1,3}|~~)(?=[^\s_~])(?P<lines>[^\n]{0,200}?[^\s_~])(?P=mark)(?!\w)"
)
CODE = re.compile(r"(?<!`)`(?P<code>[^`\n]{1,500})`(?!`)")
LINK = re.compile(r"!?\[(?P<link>[^\[\]\n]{1,500})\]\([^()\s]{1,2000}(?:\s[^()\n]{0,200})?\)")
QUOTE = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)
HEADING = re.compile(r"^[ \t]*#{1,6}[ \t]+(?P<heading>[^\n]*)$", re.MULTILINE)
BULLET = r"[-*+•‣◦▪●–—→]"
ITEM = re.compile(rf"^[ \t]*(?:{BULLET}|\d{{1,3}}[.)])[ \t]+", re.MULTILINE)
STEP_MARK = re.compile(rf"(?:(?:step|{FOREIGN_STEP})\s*)?\(?\d{{1,3}}\)?\s*(?:[.):：–—-]|\Z)\s*", re.IGNORECASE)
_CELLS = re.compile(r"^[ \t]*\|(.*)\|[ \t]*$")
# Of a step's row in a table: its number says nothing.
NUMBER_CELL = re.compile(rf"(?:(?:step|{FOREIGN_STEP})\s*)?\d{{0,3}}[.)]?", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
_LATEX_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt)|mbox|operatorname)\s*\{([^{}]*)\}"
)
_BRACES = re.compile(r"(?<![A-Za-z])\{([^{}]*)\}")
_LATEX_MARK = re.compile(r"\\[()\[\],;! ]|\\(?:quad|qquad|displaystyle|left|right|therefore)\b")
# What has none of these is plain already.
MARKS = re.compile(rf"[*_#`|<>\[【~\\]|^[ \t]*{BULLET}[ \t]", re.MULTILINE)


def plain_markdown(text: str) -> str:
    """Take Markdown's and LaTeX's marks off a text, line by line."""
    if not MARKS.search(text):
        return text.strip("\n")
    text = FENCE.sub(lambda found: found[2] if found[1].lower() in PROSE else "\n", text)
    text = _unboxed(HTML.sub(lambda found: "\n" if found[0][:3].lower() == "<br" else "", text))
    text = QUOTE.sub("", TABLE_RULE.sub("|-", RULE.sub("", CITATION.sub("", text))))
    text = CODE.sub(r"\g<code>", LINK.sub(r"\g<link>", text))
    return "\n".join(_plain_lines(text.split("\n"))).strip("\n")


def _plain_lines(lines: list[str]) -> Iterator[str]:
    """Take Markdown's marks off lines, and leave out headings."""
    lines_below = [""]  # what stands below each line, from the last to the first
    for line in lines[:0:-1]:
        lines_below.append(line if line.strip() else lines_below[-1])
    for number, (line, below) in enumerate(zip(lines, reversed(lines_below), strict=True)):
        heading = HEADING.match(line)
        bold = re.fullmatch(r"[ \t]*(?:\*\*|__)([^*_\n]{1,200})(?:\*\*|__)[:：]?[ \t]*", line)
        plain = _unmarked(heading["heading"] if heading is not None else line)
        if heading is not None or (bold is not None and below):
            yield from _heading_lines(plain.strip(), below, heading is not None)
        elif line.lstrip().startswith("|"):
            yield from _table_line(plain, below_rule=_is_table_rule(lines, number))
        else:
            yield re.sub(rf"^([ \t]*){BULLET}[ \t]+", r"\1- ", plain)


def _unmarked(line: str) -> str:
    for _ in range(3):  # marks within marks
        line, count = EMPHASIS.subn(lambda found: found["stars"] or found["lines"], line)
        if not count:
            break
    return line.replace("**", "")


def _heading_lines(title: str, below: str, is_heading: bool) -> Iterator[str]:
    """Word a heading: what numbers a step stays, and so does what concludes; any other title goes."""
    title = title.rstrip("# \t")
    mark = STEP_MARK.match(title)
    if conclusion_words().match(title) is not None:
        yield title
    elif conclusion_words().match(f"{title}:") is not None:
        yield f"{title}:"
    elif mark is not None:
        # What the next lines say is the step, and its heading only names it.
        whole = re.search(r"\w", title[mark.end() :]) and title[-1:] not in ":：" and _begins_part(below)
        yield title if whole else f"{mark[0].strip().rstrip('.:：)–—- ')}. "
    elif not is_heading and title[-1:] in ".!?。！？":
        yield title
    else:
        yield ""


def _begins_part(line: str) -> bool:
    """Say whether a line begins another step or concludes, or there is none."""
    plain = _unmarked(line).lstrip("# \t")
    return not plain or STEP_MARK.match(plain) is not None or conclusion_words().match(plain) is not None


def _is_table_rule(lines: list[str], number: int) -> bool:
    return number + 1 < len(lines) and lines[number + 1].strip() == "|-"


def _table_line(line: str, *, below_rule: bool) -> Iterator[str]:
    """Make a row of a table one line: its cells behind each other, but for its number and the row of heads."""
    cells = _CELLS.match(line)
    if below_rule or line.strip() == "|-":
        return
    if cells is None:
        yield line
        return
    parts = [cell.strip() for cell in cells[1].split("|")]
    if len(parts) > 1 and NUMBER_CELL.fullmatch(parts[0]):
        parts = parts[1:]
    label = re.fullmatch(ANSWER_LABEL, parts[0], re.IGNORECASE) if len(parts) == 2 else None
    yield f"Answer: {parts[1]}" if label else "- " + " ".join(filter(None, parts))


def _unboxed(text: str) -> str:
    r"""Open ``\boxed{}``; the last one concludes if nothing else does in its line."""
    boxes = list(_BOX.finditer(text))[-100:]
    if not boxes and "\\" not in text:
        return text
    for box in reversed(boxes):
        end = _closing_brace(text, box.end())
        content = _BRACES.sub(r"\1", _without_latex(text[box.end() : end]))
        content = _without_latex(content)
        before, after = text[: box.start()].rstrip("$ \t"), text[end + 1 :].lstrip("$")
        before = before.removesuffix("\\(").removesuffix("\\[").rstrip(" \t")
        after = re.sub(r"\A\s*\\[)\]]", "", after)
        line = before.rpartition("\n")[2]
        gap = " " if line and line[-1:] not in "(*" else ""
        concludes = box is boxes[-1] and not re.search(
            rf"(?:{conclusion_words().pattern})[\s*]*\Z", line + gap, re.IGNORECASE
        )
        rest, newline, below = after.partition("\n")
        said = f"\nThe answer is ({content})." if concludes and content else ""
        # Behind the end of a sentence, or in a line of its own, it says nothing but the answer.
        alone = bool(said) and line.rstrip()[-1:] in "*.!?:。" and not rest.strip(" .*")
        text = f"{before}{said}{newline}{below}" if alone else f"{before}{gap}{content}{rest}{said}{newline}{below}"
    return _without_latex(text)


def _closing_brace(text: str, start: int) -> int:
    depth = 1
    end = min(len(text), start + 2_000)
    for place in range(start, end):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return place
    return end


def _without_latex(text: str) -> str:
    for _ in range(3):
        text, count = _LATEX_TEXT.subn(r"\1", text)
        if not count:
            break
    return _LATEX_MARK.sub(" ", text).replace("\\%", "%").replace("\\$", "$").replace("\\&", "&")
