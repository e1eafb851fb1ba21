"""Fixtures that every test file shares."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    # A core for each of xdist's workers. Threads that wait in a loop for each other, as llama.cpp's and the kernels' do, would
    # stall where two processes share all cores; whoever asks how many cores there are is told one, and starts no more threads.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

# Nothing that whoever runs the tests has written for their own calls may decide.
os.environ["PYTRACE_CONFIG"] = os.devnull

from pytrace import _core
from pytrace.errors import DeviceUnavailableError, ModelFileError
from pytrace.kernels import devices
from pytrace.models import registry
from tests.server_double import Double, double

if TYPE_CHECKING:
    from pytrace.models.llama.llama_cpp import LlamaCppModel

# The `isa` fixture is set once around all examples of a property, which is what we want.
settings.register_profile(
    "pytrace",
    deadline=None,
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("pytrace")


# Files of half a minute and more, and one that takes minutes under the sanitizers. Several processes begin with them, so that none is
# left alone with one at the end.
_LONG = (
    "kernels/test_similarity_cuda.py",
    "attack/test_attack.py",
    "training/test_edge.py",
    "models/test_weight_formats.py",
    "evaluation/test_ray_engine.py",
    "docs_site/test_site.py",
    "integrations/test_examples.py",
    "serve/test_explorer.py",
    "kernels/test_fuzzy.py",
    "docs_site/test_blocks.py",
    "serve/test_api.py",
    "kernels/test_cuda_product.py",
    "triples/test_graph.py",
    "models/test_llama_cpp.py",
    "models/test_model_families.py",
    "kg/test_local_store.py",
    "serve/test_replicas.py",
    "training/test_training_export.py",
    "evaluation/test_workers.py",
    "integrations/test_docs.py",
    "documents/test_formats.py",
    "engine/test_self_test.py",
    "engine/test_running.py",
    "cli/test_sweeps.py",
    "cli/test_ask_eval_cli.py",
    "integrations/test_selection.py",
    "cli/test_train_cli.py",
    "retrieval/test_passage_index.py",
    "kernels/test_cuda_overlap.py",
    "engine/test_spread_index.py",
    "kernels/test_hostile_calls.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest. Skip the front door's example, which needs the tiny models, where these are not."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name == "pytrace":
            item.add_marker(pytest.mark.models)
            try:
                registry.resolve("tiny", "language-model")
            except ModelFileError as error:
                item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture
def heeding_interrupts() -> Iterator[None]:
    """Heed SIGINT, and let child processes heed it: tests run in the background of a shell inherit that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=_core.available_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once on every instruction set that this machine has."""
    before = _core.active_isa()
    _core.set_active_isa(request.param)
    yield request.param
    _core.set_active_isa(before)


def emulation_folder() -> Path:
    """Return where the emulated card was built: by `make emulation`, or with sanitizers by other targets."""
    return Path(os.environ.get("PYTRACE_EMULATION") or Path(__file__).parents[1] / "build" / "emulation")


def emulation_program(name: str) -> Path:
    """Return one of the programs that are built beside the emulated card, or skip with the reason."""
    program = emulation_folder() / name
    if not program.is_file():
        pytest.skip(f"no emulated card in {emulation_folder()}; `make emulation` builds it")
    return program


@functools.cache
def emulated_module() -> ModuleType:
    """Return pytrace._cuda as it is for the emulated card."""
    files = sorted(emulation_folder().glob("_cuda_emulated.*.so"))
    if not files:
        pytest.skip(f"no emulated card in {emulation_folder()}; `make emulation` builds it")
    spec = importlib.util.spec_from_file_location("_cuda_emulated", files[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _module_of_card() -> ModuleType:
    """Return pytrace._cuda if there is a card, or skip with what was found."""
    try:
        module = importlib.import_module("pytrace._cuda")
        module.require_device(0)
    except (ModuleNotFoundError, DeviceUnavailableError) as error:
        pytest.skip(f"needs a CUDA card: {error}")
    return module


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu)])
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test on the emulated card and on a real one; return the device to ask for."""
    module = emulated_module() if request.param == "emulated" else _module_of_card()
    monkeypatch.setattr(devices, "_module", module)
    return "cuda"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the shared evaluation data, or skip with the reason."""
    path = Path(os.environ.get("PYTRACE_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not path.is_dir():
        pytest.skip(f"no evaluation data at {path}; set PYTRACE_DATA to its folder")
    return path


@pytest.fixture(scope="session")
def random_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny Llama model with random float32 weights: see `tests/gguf_files.py`."""
    from tests.gguf_files import write_random_gguf  # so that kernels can be tested without the gguf package

    return write_random_gguf(tmp_path_factory.mktemp("models") / "random.gguf")


@pytest.fixture(scope="module")
def alone(random_gguf: Path) -> LlamaCppModel:
    """Return a model that keeps nothing from one call to the next; the tests give it one prompt a call."""
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    return LlamaCppModel(random_gguf, threads=1, context=256, float32_cache=True, reuse_tokens=0, swap_bytes=0)


@pytest.fixture
def model(random_gguf: Path) -> Iterator[LlamaCppModel]:
    """Return a model as the defaults have it, but in float32 throughout, so that rounding hides nothing."""
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    with LlamaCppModel(random_gguf, threads=1, context=256, float32_cache=True) as model:
        yield model


@pytest.fixture(scope="session")
def tiny_models() -> dict[registry.Role, Path]:
    """Return the paths of the tiny profile's real models by role, or skip with the reason. Tests never fetch them."""
    roles: tuple[registry.Role, ...] = ("language-model", "encoder")
    try:
        return {role: registry.resolve("tiny", role) for role in roles}
    except ModelFileError as error:
        pytest.skip(str(error))


@pytest.fixture
def openai() -> Iterator[Double]:
    """Return a double of OpenAI's server."""
    with double("openai") as server:
        yield server


@pytest.fixture
def vllm() -> Iterator[Double]:
    """Return a double of vLLM's server."""
    with double("vllm") as server:
        yield server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let retries begin at once."""
    from pytrace.models.servers import http_client  # so that kernels can be tested without the models' packages

    monkeypatch.setattr(http_client, "FIRST_PAUSE", 0.01)
    monkeypatch.delenv("PYTRACE_API_KEY", raising=False)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Return one Ray for a module's tests: it takes seconds to start."""
    # Not `importorskip`: Ray must find its environment when it is imported first.
    from pytrace.errors import MissingDependencyError
    from pytrace.evaluation.run.ray_cluster import import_ray, ray_cluster

    try:
        module = import_ray()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    with ray_cluster(6, None):
        yield module
