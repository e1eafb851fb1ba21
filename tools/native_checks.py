"""Says whether the native sources are those that a slow check has passed on, so that CI runs it for changed ones alone.

    python tools/native_checks.py changed sanitize   # exit status 0 if they changed since, 1 if not
    python tools/native_checks.py passed sanitize    # as `make sanitize` and `make cuda-check` say when they pass

What was passed is written into `tests/native/checked.txt`, a digest of the sources a check, which is committed with them.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "native" / "checked.txt"
BUILD = ("CMakeLists.txt", "cmake/*")
SOURCES = {
    "sanitize": (
        *BUILD, "csrc/*/*", "bindings/*", "bindings/cuda/*", "tests/cuda_emulation/*", "tests/native/*.cc",
        "tests/kernels/*.py", "pytrace/kernels/*.py",
    ),
    "cuda": (
        *BUILD, "csrc/*/*.h", "csrc/cuda/*", "bindings/*.h", "bindings/cuda/*", "pytrace/_cuda.pyi",
        "tests/kernels/test_cuda_machine_code.py",
    ),
}  # fmt: skip


def digest(check: str) -> str:
    """Return the SHA-256 of a check's sources, names and contents, in hexadecimal."""
    total = hashlib.sha256()
    for path in sorted({path for pattern in SOURCES[check] for path in ROOT.glob(pattern) if path.is_file()}):
        content = path.read_bytes()
        total.update(f"{path.relative_to(ROOT).as_posix()} {len(content)}\n".encode() + content)
    return total.hexdigest()


def recorded() -> dict[str, str]:
    """Return the digests of the record, by check."""
    words = RECORD.read_text(encoding="ascii").split() if RECORD.exists() else []
    return dict(zip(words[::2], words[1::2], strict=True))


def main(arguments: list[str]) -> int:
    """Run a command; return its exit status."""
    if len(arguments) != 2 or arguments[0] not in ("changed", "passed") or arguments[1] not in SOURCES:
        print(f"usage: native_checks.py changed|passed {'|'.join(SOURCES)}", file=sys.stderr)
        return 2
    command, check = arguments
    found, before = digest(check), recorded()
    if command == "passed":
        RECORD.write_text("".join(f"{name} {of}\n" for name, of in sorted({**before, check: found}.items())), "ascii")
        return 0
    same = before.get(check) == found
    print(f"{check}: the native sources are {'those that it passed on' if same else 'not those that it passed on'}")
    return 1 if same else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
