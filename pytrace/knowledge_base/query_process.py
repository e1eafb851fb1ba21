"""The process that holds a store and runs its queries, each in a fork of its own that the system ends at a limit.

pyoxigraph looks up only when it has found a solution: a path without end, a sum over 10^9 rows or a text that doubles itself
can be stopped by nobody but the system, and only together with their process. So the store lives in a process without
threads, which forks for every query. The fork shares the store's memory and costs a millisecond for a small store, some 20
for 10^6 triples; it writes what it finds into a piece of memory that both see, so that what was found stays whatever ends it.
A timer ends it after its seconds, and the system gives it no more memory than its megabytes.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import mmap
import os
import resource
import selectors
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import batched, count
from pathlib import Path
from typing import Any, NamedTuple

from pytrace.errors import DataError, InputError, PytraceError
from pytrace.knowledge_base.lookups import Lookups
from pytrace.knowledge_base.sparql import GraphQuery
from pytrace.knowledge_base.sparql_store import KnowledgeStore
from pytrace.knowledge_base.store_loading import load_store
