"""`pytrace serve` with less patience and fewer connections than its options allow, for tests with clients that are slow."""

from __future__ import annotations

from functools import partial
from typing import Any

from pytrace.__main__ import main
from pytrace.serve import settings

PATIENCE, CONNECTIONS = 2.0, 64

if __name__ == "__main__":
    with_less: Any = partial(settings.ServeSettings, patience=PATIENCE, connections=CONNECTIONS)
    vars(settings)["ServeSettings"] = with_less
    main()
