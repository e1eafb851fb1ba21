"""Print how large the code is, for `make counts`: lines, comments, files, rooms, classes, and module names used twice."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path


def main() -> int:
    """Count the package's Python files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "pytrace/*.py"], capture_output=True, text=True, check=True).stdout
    files = [Path(line) for line in listed.splitlines()]
    lines = comments = classes = protocols = 0
    names: dict[str, list[str]] = defaultdict(list)
    long = []
    for path in files:
        source = path.read_text(encoding="utf-8")
        count = source.count("\n")
        lines += count
        if count > 400:
            long.append((count, str(path)))
        comments += len(
            {
                token.start[0]
                for token in tokenize.generate_tokens(io.StringIO(source).readline)
                if token.type == tokenize.COMMENT
            }
        )
        found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
        classes += len(found)
        protocols += sum(any(ast.unparse(base) == "Protocol" for base in node.bases) for node in found)
        names[path.parent.name if path.name == "__init__.py" else path.stem].append(str(path))
    rooms = sorted({path.parts[1] for path in files if len(path.parts) > 2})
    loose = sorted(path.stem for path in files if len(path.parts) == 2 and path.stem != "__init__")
    twice = {name: places for name, places in names.items() if len(places) > 1}
    print(f"lines of Python in pytrace/: {lines} in {len(files)} files")
    print(f"lines with a comment: {comments} ({100 * comments / lines:.1f} %)")
    print(f"classes: {classes}, of which protocols: {protocols}")
    print(f"rooms: {len(rooms)} ({', '.join(rooms)}); loose modules at the top: {', '.join(loose)}")
    print(f"module names used twice or more: {len(twice)} ({', '.join(sorted(twice))})")
    print(f"files over 400 lines: {len(long)}")
    for count, path in sorted(long, reverse=True):
        print(f"  {count} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
