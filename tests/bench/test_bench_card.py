"""`pytrace bench --device cuda`: the whole of it at toy size on the emulated card, wrong answers, and a card that is not there."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytrace.bench import CARD_KERNELS, alignment, beam, fuzzy, peers
from pytrace.bench import bench_report as report
from pytrace.bench import similarity_card as similarity
from pytrace.bench.beam import Step
from pytrace.bench.card import Card, driver_facts
from pytrace.bench.context import Bench
from pytrace.bench.measurements import Achieved, Limits, Settings, Work
from pytrace.bench.peers import CUDA_PEERS, Peers
from pytrace.bench.suite import command
from pytrace.cli import common, program
from pytrace.errors import DeviceUnavailableError, VerificationError
from pytrace.kernels import Expansion, devices, expand, top_k
from pytrace.kernels.alignment import BatchAlignment, Ragged

TOY = 1e-6


def toy_run(*arguments: str) -> int:
    toy = ["--repetitions", "1", "--threads", "1", "--scale", str(TOY)]
    return common.run(program, ["bench", "--device", "cuda", *toy, *arguments])


@pytest.mark.usefixtures("card")
def test_the_whole_bench_runs_at_toy_size_and_its_json_names_the_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bench.json"
    assert toy_run("--json", "--output", str(output)) == 0
    document = json.loads(capsys.readouterr().out)
    assert json.loads(output.read_text(encoding="utf-8")) == document
    assert document["complete"]
    assert list(document["kernels"]) == list(CARD_KERNELS)
    card = document["machine"]["card"]
    assert {"name", "compute_capability", "memory_bytes", "driver_serves_cuda", "module_built_with_cuda"} <= card.keys()
    assert document["limits"]["bytes_per_second"] > 0
    assert document["command"].endswith(f"--device cuda --scale {TOY:g}")
    assert {name: len(kernel["rows"]) for name, kernel in document["kernels"].items()} == {
        "similarity": 7, "fuzzy": 2, "alignment": 2, "beam": 2,
    }  # fmt: skip
    for kernel in document["kernels"].values():
        assert kernel["sweeps"] == []
        for row in kernel["rows"]:
            if row["case"].endswith("from NumPy"):
                assert row["extra"]["GB/s to the card"] > 0
                assert row["extra"]["GB/s back"] > 0
                assert 0 <= row["extra"]["share of the call that is transfer"] <= 1
    (bandwidth,) = document["kernels"]["similarity"]["checks"]
    assert (bandwidth["bar"], bandwidth["sense"]) == (0.7, "at least")
    assert bandwidth["value"] > 0
    (pairs,) = document["kernels"]["fuzzy"]["checks"]
    assert (pairs["bar"], pairs["sense"]) == (1e8, "at least")
    if card["emulated"]:
        assert document["missing_peers"] == {peer.package: "the card is emulated" for peer in CUDA_PEERS.values()}


@pytest.mark.usefixtures("card")
def test_text_says_which_card_and_what_it_copies_in_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    assert toy_run("beam") == 0
    shown = capsys.readouterr().out
    assert "compute capability" in shown
    assert "module built with CUDA" in shown
    assert "this card reads and writes" in shown
    assert "beam: rows" in shown
    assert "these figures are no record" in shown


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("kernel", CARD_KERNELS)
def test_a_wrong_answer_ends_the_run_before_it_is_timed(
    kernel: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = {"similarity": similarity, "fuzzy": fuzzy.fuzzy, "alignment": alignment, "beam": beam}[kernel]
    name = {"similarity": "top_k", "fuzzy": "cdist", "alignment": "align_batch", "beam": "expand"}[kernel]
    right = getattr(module, name)

    def wrong(*given: Any, **options: Any) -> Any:
        found = right(*given, **options)
        parts = [part for one in given for part in (one if isinstance(one, Ragged) else (one,))]
        if "device" not in options and not any(map(devices.on_card, parts)):
            return found
        if isinstance(found, BatchAlignment):
            return BatchAlignment(found.best, devices.to_host(found.scores) + 1, found.matches, found.lengths)
        if isinstance(found, tuple):
            mixed = [devices.to_host(part) for part in found]
            mixed[0] = mixed[0] + 1
            return type(found)(*mixed) if isinstance(found, Expansion) else tuple(mixed)
        return devices.to_host(found) + 1

    monkeypatch.setattr(module, name, wrong)
    monkeypatch.setattr("pytrace.bench.stopwatch.Stopwatch.readings", lambda *_: pytest.fail("timed"))
    assert toy_run(kernel) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("pytrace: ")
    assert "processor's" in said or "trying everything" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set_cover",), "set_cover runs on the processor alone; with --device cuda name similarity, fuzzy, alignment"),
        (("--no-rows",), "there are no sweeps to time or to draw"),
        (("--plots", "PLACE"), "there are no sweeps to time or to draw"),
        (("--scale", "0"), "0"),
    ],
)
def test_what_a_card_has_not_is_wrong_use(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = [argument.replace("PLACE", str(tmp_path / "plots")) for argument in arguments]
    assert common.run(program, ["bench", "--device", "cuda", *given]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_scale_is_for_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert common.run(program, ["bench", "--scale", "0.5"]) == 2
    assert "--scale is for --device cuda" in capsys.readouterr().err


def test_without_a_card_it_is_one_sentence_and_nothing_is_half_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Module:
        emulated = False

        @staticmethod
        def require_device(_: int) -> None:
            raise DeviceUnavailableError("there is no CUDA driver")

        @staticmethod
        def installation() -> tuple[int, int, str, list[Any]]:
            return 0, 13000, "there is no CUDA driver", []

    monkeypatch.setattr(devices, "_module", Module)
    output = tmp_path / "bench.json"
    assert common.run(program, ["bench", "--device", "cuda", "--output", str(output)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("pytrace: device 'cuda' cannot be used: there is no CUDA driver (")
    assert shown.err.count("\n") == 1
    assert not output.exists()


def test_peers_that_find_no_card_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        emulated = False

    monkeypatch.setattr(devices, "_module", Module)
    monkeypatch.setattr(peers, "importlib", SimpleNamespace(import_module=lambda _: object()))
    monkeypatch.setattr(peers, "_FINDS_CARD", dict.fromkeys(CUDA_PEERS, lambda _: False))
    found = Peers(["similarity"], "cuda")
    assert found.missing == dict.fromkeys(("torch", "cupy", "faiss-gpu"), "this build of it finds no card")
    assert all(found.get(name) is None for name in CUDA_PEERS)


def test_a_peer_in_float16_may_be_off_by_its_rounding_and_by_no_more() -> None:
    random = np.random.default_rng(0)
    items = random.standard_normal((200, similarity.DIM)).astype(np.float16)
    queries = random.standard_normal((4, similarity.DIM)).astype(np.float16).astype(np.float32)
    rounded = (queries @ items.T.astype(np.float32)).astype(np.float16)
    found = np.argsort(-rounded, axis=1, kind="stable")[:, : similarity.K]
    search = similarity.Search(queries, items, None, None)
    similarity.verify_rounded(search, found, "rounded")
    found[0, -1] = int(np.argmin(rounded[0]))
    with pytest.raises(VerificationError, match="query 0"):
        similarity.verify_rounded(search, found, "wrong")


def test_where_arithmetic_is_unknown_only_memory_has_a_share() -> None:
    achieved = Achieved.of(Work(1e9, 1e9), 0.1, Limits(1e11, None))
    assert achieved.shares == {"memory": pytest.approx(0.1)}
    assert "10% of the limit of memory" in report.rate(achieved)


def test_items_that_the_card_has_no_room_for_are_told_and_not_measured(
    card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del card
    monkeypatch.setattr(Card, "has_room", lambda *_: False)
    settings = Settings(threads=1, repetitions=1, device="cuda", scale=TOY)
    peers_of_card = Peers(["similarity"], "cuda")
    bench = Bench(settings, peers_of_card, None, lambda _: None)
    (check,) = similarity.one_query(bench, Card(peers_of_card))
    assert (check.reached, check.note[:12]) == (None, "not measured")  # type: ignore[union-attr]


def test_the_command_repeats_a_run_on_the_card() -> None:
    settings = Settings(threads=2, device="cuda", sweeps=False)
    assert command(CARD_KERNELS, settings).endswith("pytrace bench --threads 2 --repetitions 7 --seed 0 --device cuda")
    assert "pytrace bench beam --threads 2" in command(["beam"], settings)


def test_what_the_driver_tells_is_read_by_the_cards_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Said:
        stdout = "Other, 1, 2, 3, 4, 5, 6, 7, 8\nNVIDIA H100, 570.1, 1980, 2619, 345, 700.00, 5, 16, [N/A]\n"

    monkeypatch.setattr("subprocess.run", lambda *_, **__: Said)
    assert driver_facts("NVIDIA H100") == {
        "driver_version": "570.1", "max_multiprocessor_mhz": "1980", "max_memory_mhz": "2619",
        "multiprocessor_mhz_at_start": "345", "power_limit_watts": "700.00", "pcie_generation": "5", "pcie_lanes": "16",
    }  # fmt: skip
    assert driver_facts("another") == {}

    def missing(*_: Any, **__: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("subprocess.run", missing)
    assert driver_facts("NVIDIA H100") == {}


HOST: Any = SimpleNamespace(finished=lambda call: call)
"""In a card's place, where PyTorch computes on the processor."""


@pytest.fixture
def on_torch(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a bench whose peer PyTorch computes on the processor."""
    torch = pytest.importorskip("torch", reason="PyTorch is the extra `train`")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "_module", SimpleNamespace(emulated=False))
    found = Peers(["similarity"], "cuda")
    assert found.get("torch") is torch
    return Bench(Settings(threads=1, repetitions=1), found, None, lambda _: None)


def test_torchs_search_is_verified_and_finds_the_best(on_torch: Bench) -> None:
    torch: Any = on_torch.peers.get("torch")
    random = np.random.default_rng(0)
    items = random.standard_normal((300, similarity.DIM)).astype(np.float16)
    queries = random.standard_normal((3, similarity.DIM)).astype(np.float16).astype(np.float32)
    there, asked = torch.from_numpy(items), torch.from_numpy(queries)
    case = similarity.Search(queries, items, asked, there)
    search: Any = similarity.peer_searches(on_torch, HOST, ["torch"], case, "case")["torch"]
    assert search()[:, 0].tolist() == top_k(queries, items, 1)[1][:, 0].tolist()
    with pytest.raises(VerificationError, match="case, torch: query"):
        similarity.peer_searches(on_torch, HOST, ["torch"], case._replace(card_items=there.flip(0)), "case")
    batches: Any = similarity.torch_batches(HOST, asked, there, 3, 100, torch)["torch"]
    expected = top_k(queries, items, 1, offsets=[0, 100, 200, 300])[1][:, 0] - [0, 100, 200]
    assert batches()[1][:, 0].tolist() == expected.tolist()


def test_torchs_beam_step_is_verified_and_chooses_the_same_chains(on_torch: Bench) -> None:
    torch: Any = on_torch.peers.get("torch")
    step = Step.random(np.random.default_rng(3), 4, 5)
    copies = step._replace(**{name: torch.from_numpy(getattr(step, name)) for name in ("scores", "logits", "finished")})
    expanded: Any = beam.torch_peer(HOST, step, copies, "case", torch)["torch"]
    _, parents, options, ended = expanded()
    expected = expand(step.scores, step.logits, step.finished, beams=5, chains=5, question_offsets=step.offsets)
    assert options.flatten().tolist() == expected.options.tolist()
    assert (parents + 5 * torch.arange(4)[:, None]).flatten().tolist() == expected.parents.tolist()
    assert ended.flatten().tolist() == expected.finished.tolist()


def test_a_copy_on_the_card_needs_arrays_of_one_shape_and_dtype(card: str) -> None:
    module = devices.cuda_module()
    source, target = (devices.to_device(np.arange(12, dtype=np.float32) * factor, card) for factor in (1, 0))
    module.copy_into(source, target)
    np.testing.assert_array_equal(target.numpy(), np.arange(12))
    for other in (np.zeros(11, dtype=np.float32), np.zeros(12), np.zeros((3, 4), dtype=np.float32)):
        with pytest.raises(ValueError, match="differ in shape or dtype"):
            module.copy_into(source, devices.to_device(other, card))
    with pytest.raises(TypeError):
        module.copy_into(np.zeros(12, dtype=np.float32), target)
