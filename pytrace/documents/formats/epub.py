"""EPUB to blocks: the chapters of a book in its reading order."""

from __future__ import annotations

import posixpath
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lxml import etree

from pytrace.documents.formats.archives import check_archive
from pytrace.documents.formats.markup import markup_blocks
from pytrace.documents.passages import Block, Extracted
from pytrace.documents.sentences import clean_text
from pytrace.errors import DataError

_METADATA = {
    "creator": "author",
    "date": "date",
    "publisher": "publisher",
    "language": "language",
    "subject": "subject",
}


def read_epub(path: Path) -> Extracted:
    """Read a book (EPUB 2 or 3)."""
    check_archive(path)
    with zipfile.ZipFile(path) as archive:
        try:
            container = _xml(archive.read("META-INF/container.xml"))
            package = next(element.get("full-path") for element in _all(container, "rootfile"))
            opf = _xml(archive.read(package))
        except (KeyError, StopIteration, etree.XMLSyntaxError, zipfile.BadZipFile) as error:
            raise DataError(f"is no EPUB that can be read ({error}); save it anew", path=path) from None
        locked = _locked(archive)
        hrefs = {item.get("id"): item.get("href") or "" for item in _all(opf, "item")}
        blocks: list[Block] = []
        missing = []
        for reference in _all(opf, "itemref"):
            name = posixpath.normpath(
                posixpath.join(posixpath.dirname(package), unquote(hrefs.get(reference.get("idref"), "")))
            )
            if name in locked:
                raise DataError("is locked (DRM); only an open copy can be read", path=path)
            try:
                data = archive.read(name)
            except KeyError:
                missing.append(name)
                continue
            blocks += markup_blocks(data)
    if not blocks:
        raise DataError("has no text that could be found", path=path)
    fields = {name: "; ".join(_texts(opf, field)) for field, name in _METADATA.items()}
    return Extracted(
        next(iter(_texts(opf, "title")), ""),
        blocks,
        metadata={name: value for name, value in fields.items() if value},
        warnings=[f"parts that it names are missing: {', '.join(missing[:5])}"] if missing else [],
    )


def _xml(data: bytes) -> Any:
    return etree.fromstring(data, parser=etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))


def _all(tree: Any, name: str) -> Any:
    return tree.iter(f"{{*}}{name}")


def _texts(tree: Any, name: str) -> list[str]:
    return [text for element in _all(tree, name) if (text := clean_text("".join(element.itertext())))]


def _locked(archive: zipfile.ZipFile) -> set[str]:
    """Return the names of encrypted parts."""
    try:
        tree = _xml(archive.read("META-INF/encryption.xml"))
    except (KeyError, etree.XMLSyntaxError):
        return set()
    return {unquote(element.get("URI") or "") for element in _all(tree, "CipherReference")}
