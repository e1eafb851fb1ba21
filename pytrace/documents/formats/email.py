"""E-mail to blocks: the text of a message, or of its HTML where it has no other."""

from __future__ import annotations

import email.policy
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser
from pathlib import Path
from typing import Any, cast

from pytrace.documents.passages import Block, Extracted
from pytrace.documents.plain import read_plain
from pytrace.documents.sentences import clean_text
from pytrace.documents.text_files import encoding_of
from pytrace.errors import DataError

_METADATA = {"from": "author", "to": "to", "cc": "cc", "message-id": "message_id", "in-reply-to": "in_reply_to"}
# Characters, which hold the addresses of some 200 recipients.
_LONGEST_HEADER = 10_000


class _Policy(email.policy.EmailPolicy):
    """The policy for modern mail, with headers cut short: the library takes time quadratic in the length of one."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:_LONGEST_HEADER]


def read_email(path: Path) -> Extracted:
    """Read a message (RFC 5322); its title is the subject, attachments are named and not read."""
    message = cast(EmailMessage, BytesParser(policy=_Policy()).parsebytes(path.read_bytes()))
    if not message.keys():
        raise DataError("has no header of an e-mail; save it anew as .eml", path=path)
    body = message.get_body(("plain", "html"))
    blocks: list[Block] = []
    if body is not None:
        text = _text(body)
        if body.get_content_subtype() == "html":
            from pytrace.documents.formats.markup import markup_blocks

            blocks = markup_blocks(text)
        else:
            read = read_plain(text)
            blocks = [Block(read.title, level=read.level), *read.blocks] if read.title else list(read.blocks)
    attached = [clean_text(part.get_filename() or part.get_content_type()) for part in message.iter_attachments()]
    warnings = [f"its attachments are not read: {', '.join(attached[:10])}"] if attached else []
    if cut := [name for name, value in message.raw_items() if len(value) == _LONGEST_HEADER]:
        warnings.append(
            f"{_LONGEST_HEADER:,} characters are read of its headers {', '.join(map(clean_text, cut[:10]))}"
        )
    return Extracted(_header(message, "subject"), blocks, metadata=_metadata(message, attached), warnings=warnings)


def _text(part: MIMEPart) -> str:
    try:
        return cast(str, part.get_content())
    except (LookupError, UnicodeError):  # an encoding that nobody knows
        data = cast(bytes, part.get_payload(decode=True))
        return data.decode(encoding_of(data)[0], "replace")


def _header(message: EmailMessage, name: str) -> str:
    try:
        return clean_text(str(message.get(name) or ""))
    except (ValueError, IndexError, AttributeError, TypeError):  # the library's own, of broken headers
        return ""


def _metadata(message: EmailMessage, attached: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: _header(message, header) for header, name in _METADATA.items()}
    try:
        date = message["date"].datetime if message["date"] else None
    except (ValueError, IndexError, AttributeError, TypeError):
        date = None
    fields["date"] = date.isoformat() if date is not None else ""
    fields["attachments"] = attached
    return {name: value for name, value in fields.items() if value}
