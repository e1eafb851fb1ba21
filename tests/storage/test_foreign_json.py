"""Foreign JSON is decoded under limits, and whatever is wrong with it is told in one line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytrace.storage import foreign_json
from pytrace.storage.foreign_json import MOST_DEPTH, check_value, decode_json, read_json


class _Row(msgspec.Struct):
    name: str
    count: int = 0
    share: float = 0.0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 50_000, "nested deeper than 100 levels"),
        (b"[" * 50_000 + b"]" * 50_000, "nested deeper than 100 levels"),
        (b"[" * 200 + b"]" * 200, "nested deeper than 100 levels"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested deeper than 100 levels"),
        (b'{"name": "\xff"}', "not UTF-8 (byte 0xff)"),
        (b'{"name": "\xed\xa0\x80"}', "not UTF-8 (byte 0xed)"),
        ('{"name": "\ud800"}', "a lone surrogate is no character"),
        (rb'{"name": "\ud800"}', "Input data was truncated"),
        (b'{"name": "", "count": 12345678901234567890}', "an integer is beyond 64 bits"),
        (b"[9223372036854775808]", "an integer is beyond 64 bits"),
        (b"1" * 5_000, "Number out of range"),
        (b"1e400", "Number out of range"),
        (b"NaN", "invalid character (byte 0)"),
        (b"[Infinity]", "invalid character (byte 1)"),
        (b'{"name": "a', "Input data was truncated"),
        (b"", "Input data was truncated"),
    ],
)
@pytest.mark.parametrize("kind", [object, _Row])
def test_what_is_wrong_is_told_in_one_line(data: bytes | str, reason: str, kind: type[object]) -> None:
    with pytest.raises(ValueError) as told:
        decode_json(data, kind)
    assert "\n" not in str(told.value)
    # What is of another kind may be told first.
    assert str(told.value) in (reason, reason.replace("Number", "Integer value")) or (
        kind is _Row and str(told.value).startswith(("Expected `object`", "Object missing"))
    )


def test_fields_that_are_missing_or_of_another_type_are_named() -> None:
    with pytest.raises(ValueError, match=r"^Object missing required field `name`$"):
        decode_json(b"{}", _Row)
    with pytest.raises(ValueError, match=r"^Expected `int`, got `str` - at `\$\.count`$"):
        decode_json(b'{"name": "a", "count": "b"}', _Row)


def test_of_a_field_that_stands_twice_the_last_counts() -> None:
    assert decode_json(b'{"name": "a", "name": "b"}', _Row) == _Row("b")


def test_lone_surrogates_are_read_where_they_are_asked_for() -> None:
    for data in (rb'{"name": "\ud800"}', '{"name": "\ud800"}'):
        assert decode_json(data, _Row, surrogates=True) == _Row("\ud800")
    with pytest.raises(ValueError, match=r"^NaN is no JSON$"):
        decode_json(rb'{"name": "\ud800", "share": NaN}', _Row, surrogates=True)
    with pytest.raises(ValueError, match=r"^a number is inf$"):
        decode_json(rb'{"name": "\ud800", "share": 1e400}', _Row, surrogates=True)


def test_a_quoted_value_does_not_lengthen_the_reason() -> None:
    with pytest.raises(ValueError) as told:
        decode_json(msgspec.json.encode({"type": "x\n" * 10_000}), msgspec.defstruct("Tagged", [], tag="t"))
    assert len(str(told.value)) <= 301
    assert "\n" not in str(told.value)


def test_the_deepest_value_that_is_read() -> None:
    value = decode_json(b"[" * MOST_DEPTH + b"]" * MOST_DEPTH, object)
    check_value(value)
    with pytest.raises(ValueError, match=f"^nested deeper than {MOST_DEPTH} levels$"):
        check_value([value])


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"name": "a"}')
    assert read_json(path, _Row) == _Row("a")
    monkeypatch.setattr(foreign_json, "MOST_BYTES", 12)
    with pytest.raises(ValueError, match=r"^more than 12 bytes$"):
        read_json(path, _Row)
    with pytest.raises(OSError, match="No such file"):
        read_json(tmp_path / "b.json", _Row)
