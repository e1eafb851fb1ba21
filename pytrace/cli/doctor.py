"""``pytrace doctor``: what this installation has, what it lacks, and what to do about it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pytrace import __version__, _core
from pytrace.cli import common, configuration
from pytrace.cli.commands import Command, Output
from pytrace.cli.features import Feature, features
from pytrace.engine.model_abilities import describe
from pytrace.errors import DeviceUnavailableError, PytraceError
from pytrace.models import registry
from pytrace.models.llama import extra_buffers as llama_buffers
from pytrace.models.llama.prompt_cache import kept_files
from pytrace.models.registry import rewritten
from pytrace.models.registry.known_models import Role

# What NVIDIA's driver, or what hands its cards to a container, leaves for all to see.
_GPU_SIGNS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidia0"))
# The major compute capability of the oldest card that csrc/cuda is compiled for.
_LEAST_MAJOR = 8
_REBUILD = (
    "build the module where nvcc is on the PATH: in a checkout of this version, pip install --no-deps ./packaging/cuda; or all of "
    "pytrace, pip install --force-reinstall --no-deps --config-settings=cmake.define.PYTRACE_CUDA=on ."
)
_GPU_MODELS = "pip uninstall onnxruntime llama-cpp-python, then CMAKE_ARGS=-DGGML_CUDA=on pip install --no-cache-dir 'pytrace-rag[cuda]'"
_NEW_DRIVER = "install NVIDIA's driver in a version that serves this module's CUDA, and let this process see the card"

_Add = Callable[[str, str], None]  # takes what is wrong and what to do about it
# By their names on PyPI, whichever of the extras they come from.
_PACKAGES = ("numpy", "tokenizers", "onnxruntime", "onnxruntime-gpu", "llama-cpp-python", "huggingface-hub", "httpx2")


class Problem(msgspec.Struct, frozen=True):
    """Something that is missing or wrong, and what to do about it."""

    what: str
    remedy: str


class Card(msgspec.Struct, frozen=True):
    """A CUDA device, by its number; memory in bytes."""

    number: int
    name: str
    compute_capability: str
    multiprocessors: int
    memory: int


class Cuda(msgspec.Struct, frozen=True):
    """The CUDA kernels' side: whether their module is built in, with which CUDA, and what it finds.

    `driver` is the newest CUDA that the driver serves. `missing` says why there is no card to use; empty if there is one.
    """

    built_in: bool
    built_with: str | None
    driver: str | None
    cards: list[Card]
    missing: str


class Report(msgspec.Struct, frozen=True):
    """All that the doctor found; sizes are bytes, and null stands for what is not there or cannot be known.

    `configuration` has the files that are used, the nearest first, and what each says; `environment` the variables that are set.
    """

    pytrace: str
    python: str
    platform: str
    packages: dict[str, str | None]
    instruction_sets: list[str]
    active_instruction_set: str
    threads: int
    processor: str
    processors: int
    usable_processors: float
    memory: int | None
    available_memory: int | None
    configuration: dict[str, list[str]]
    environment: list[str]
    home: str
    home_free: int | None
    prompt_cache: int
    models: dict[str, str]
    providers: list[str]
    gpu_offload: bool | None
    cuda: Cuda
    features: list[Feature]
    problems: list[Problem]


class Doctor(Command):
    """Say what this installation has, what it lacks and what to do about it."""

    def run(self) -> Output:
        report = examine()
        return Output(report, lambda: _print(report))


def _print(report: Report) -> None:
    rows = [
        ("pytrace", f"{report.pytrace} on Python {report.python}, {report.platform}"),
        *((name, version or "not installed") for name, version in report.packages.items()),
        ("instruction sets", f"{', '.join(report.instruction_sets)}; active: {report.active_instruction_set}"),
        ("threads", str(report.threads)),
        ("processor", f"{report.processor}, {report.processors} logical, {report.usable_processors:g} usable"),
        ("memory", f"{common.human_size(report.memory)}, {common.human_size(report.available_memory)} available"),
        *((file, ", ".join(said) or "says nothing") for file, said in report.configuration.items()),
        *([] if report.configuration else [(configuration.NAME, "none is used")]),
        ("environment", ", ".join(report.environment) or "no PYTRACE_ variable is set"),
        ("PYTRACE_HOME", f"{report.home}, {common.human_size(report.home_free)} free"),
        ("prompt cache", f"{common.human_size(report.prompt_cache)} of beginnings of prompts, evaluated"),
        *((f"model {name}", state) for name, state in report.models.items()),
        ("onnxruntime providers", ", ".join(report.providers) or "-"),
        ("llama.cpp GPU offload", "-" if report.gpu_offload is None else "yes" if report.gpu_offload else "no"),
        *_cuda_rows(report.cuda),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        common.print_text(f"{name:<{width}}  {value}")
    common.print_text()
    for feature in report.features:
        common.print_text(f"{'ready  ' if feature.ready else 'lacking'}  {feature.name}")
        if not feature.ready:
            common.print_text(f"           {feature.lacks}\n           do: {feature.remedy}")
    common.print_text()
    for problem in report.problems:
        common.print_text(f"problem: {problem.what}\n  do: {problem.remedy}")
    if not report.problems:
        common.print_text("no problems found")


def examine() -> Report:
    """Look at the installation; a part that cannot be examined becomes a problem in the report, never an error."""
    problems: list[Problem] = []

    def add(what: str, remedy: str) -> None:
        problems.append(Problem(what, remedy))

    packages = {name: _version(name) for name in _PACKAGES}
    if error := _core.active_isa_error():
        add(error, f"set PYTRACE_ISA to one of {', '.join(_core.available_isas())}, or unset it")
    home, free, models, roles = _models(add)
    memory, available = _memory()
    configured = _configuration(add)
    providers, gpu_offload = _providers(packages, add), _gpu_offload(packages, add)
    cuda, remedy = _cuda(packages, add)
    return Report(
        pytrace=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        packages=packages,
        instruction_sets=_core.available_isas(),
        active_instruction_set=_core.active_isa(),
        threads=_core.num_threads(),
        processor=llama_buffers.processor_name(),
        processors=os.cpu_count() or 1,
        usable_processors=_usable_processors(),
        memory=memory,
        available_memory=available,
        configuration=configured,
        environment=sorted(name for name, value in os.environ.items() if name.startswith("PYTRACE_") and value),
        home=home,
        home_free=free,
        prompt_cache=_prompt_cache(),
        models=models,
        providers=providers,
        gpu_offload=gpu_offload,
        cuda=cuda,
        features=[*features(_installed(), roles), *_on_gpu(providers, gpu_offload, cuda, remedy)],
        problems=problems,
    )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _installed() -> set[str]:
    """Return the names of all distributions that are here, as PyPI writes them."""
    names = (each.name for each in importlib.metadata.distributions())
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names if name}


def _configuration(add: _Add) -> dict[str, list[str]]:
    """Return the files of repeated options, and what each says to which command."""
    from pytrace.cli import program

    said: dict[str, list[str]] = {}
    try:
        for file in configuration.files():
            said[str(file.path)] = []
            said[str(file.path)] += configuration.check(program, file)
    except PytraceError as error:
        add(str(error), "correct or remove that")
    return said


def _prompt_cache() -> int:
    try:
        return sum(size for _, size, _ in kept_files(registry.prompt_cache()))
    except PytraceError:  # there is no home, as is told elsewhere
        return 0


def _models(add: _Add) -> tuple[str, int | None, dict[str, str], set[Role]]:
    try:
        home = registry.home()
    except PytraceError as error:
        add(str(error), "export PYTRACE_HOME=DIRECTORY")
        return "?", None, {}, set()
    # A home that is not there yet would be made below its nearest parent that is.
    existing = next((folder for folder in (home, *home.parents) if folder.exists()), Path("/"))
    if not os.access(existing, os.W_OK):
        add(f"{existing} cannot be written to", "set PYTRACE_HOME to a directory of your own")
    try:
        known = registry.catalog()
        statuses = {model.name: registry.status(model, known=known) for model in known.models}
    except PytraceError as error:
        add(str(error), "correct or remove that file")
        statuses = {}
    for name, status in statuses.items():
        if status.state in {"partial", "damaged"}:
            add(f"model {name} is {status.state}", f"pytrace models pull --repair {name}")
    states = {}
    for name, status in statuses.items():
        choice = status.rewritten
        used = f", used as {choice.format}: {choice.path}" if choice is not None and choice.state == "in use" else ""
        states[name] = f"{status.state}, {common.human_size(status.size)}{used}"
        if status.role == "language-model" and status.state == "pulled":
            states[name] += f"; {describe(name)}"
        if stale := _stale(name, choice):
            add(stale, f"pytrace models fastest {name}")
    roles = {status.role for status in statuses.values() if status.state == "pulled"}
    return str(home), shutil.disk_usage(existing).free, states, roles


def _stale(name: str, choice: rewritten.RewrittenStatus | None) -> str:
    """Say what is wrong with a choice of weight format: a file that is not whole, or figures from elsewhere."""
    if choice is None:
        return ""
    if choice.state not in {"in use", "original kept"}:
        return f"the rewritten file of model {name} is not in order: {choice.state}"
    if choice.record is not None:
        then = (choice.record.processor, choice.record.llama_cpp)
        # Which format is fastest depends on both.
        if then != (llama_buffers.processor_name(), _version("llama-cpp-python")):
            return f"the weight format of model {name} was chosen for {' with llama-cpp-python '.join(then)}"
    return ""


def _providers(packages: dict[str, str | None], add: _Add) -> list[str]:
    if packages["onnxruntime"] and packages["onnxruntime-gpu"]:
        add(
            "onnxruntime and onnxruntime-gpu are both installed, and one has overwritten files of the other",
            "pip uninstall onnxruntime onnxruntime-gpu, then install the one you want",
        )
    if not (packages["onnxruntime"] or packages["onnxruntime-gpu"]):
        return []
    try:
        runtime = importlib.import_module("onnxruntime")
        runtime.disable_telemetry_events()  # its builds for Windows send some unless they are told not to
        return [str(name) for name in runtime.get_available_providers()]
    except Exception as error:  # noqa: BLE001 - a broken native library raises whatever it likes
        add(f"onnxruntime cannot be loaded ({error})", "pip install --force-reinstall onnxruntime")
        return []


def _gpu_offload(packages: dict[str, str | None], add: _Add) -> bool | None:
    if not packages["llama-cpp-python"]:
        return None
    try:
        return bool(importlib.import_module("llama_cpp").llama_supports_gpu_offload())
    except Exception as error:  # noqa: BLE001 - a broken native library raises whatever it likes
        add(f"llama-cpp-python cannot be loaded ({error})", "pip install --force-reinstall llama-cpp-python")
        return None


def _on_gpu(providers: list[str], gpu_offload: bool | None, cuda: Cuda, remedy: str) -> Iterator[Feature]:
    """Yield the verdicts on what a GPU would do; `remedy` is for the kernels."""
    yield Feature("kernels on a GPU", not cuda.missing, cuda.missing, remedy if cuda.missing else "")
    lacks = [] if "CUDAExecutionProvider" in providers else ["onnxruntime has no CUDA"]
    lacks += [] if gpu_offload else ["llama.cpp was built without CUDA"]
    yield Feature("models on a GPU", not lacks, "; ".join(lacks), _GPU_MODELS if lacks else "")


def _cuda(packages: dict[str, str | None], add: _Add) -> tuple[Cuda, str]:
    """Return what CUDA has here, and what would give it what is missing."""
    cuda, remedy = _find_cards()
    # Where there is no GPU, that nothing can use one is a fact and no problem.
    signs = [str(path) for path in _GPU_SIGNS if path.exists()]
    if cuda.missing and signs:
        add(f"a GPU is here ({signs[0]}), but the kernels cannot use it: {cuda.missing}", remedy)
    elif cuda.missing and packages["onnxruntime-gpu"]:
        add(
            f"onnxruntime-gpu is installed, but no GPU can be used: {cuda.missing}",
            f"{remedy}; without a GPU: pip uninstall onnxruntime-gpu, then install onnxruntime",
        )
    return cuda, remedy


def _find_cards() -> tuple[Cuda, str]:
    """Look for cards; returns what there is, and what to do where none can be used."""
    from pytrace.kernels import devices

    try:
        driver, runtime, problem, listed = devices.cuda_module().installation()
    except DeviceUnavailableError as error:
        built_in = importlib.util.find_spec("pytrace._cuda") is not None
        # What follows the semicolon is the remedy, which the problem says apart.
        return Cuda(built_in, None, None, [], str(error).partition(";")[0]), _REBUILD
    except Exception as error:  # noqa: BLE001 - a broken native library raises whatever it likes
        return Cuda(True, None, None, [], f"the CUDA module fails ({type(error).__name__}: {error})"), _REBUILD
    cards = [Card(number, name, f"{major}.{minor}", count, size) for number, name, major, minor, count, size in listed]
    remedy = _NEW_DRIVER
    if not problem and not any(major >= _LEAST_MAJOR for _, _, major, *_ in listed):
        newest = max(((major, minor) for _, _, major, minor, *_ in listed), default=(0, 0))
        problem = f"the kernels need compute capability {_LEAST_MAJOR}.0 or more, and the newest card has {newest[0]}.{newest[1]}"
        remedy = "use device 'cpu', or a card of the Ampere generation or later"
    built_with, driver_text = devices.version_text(runtime), devices.version_text(driver) if driver else None
    return Cuda(True, built_with, driver_text, cards, problem), remedy


def _cuda_rows(cuda: Cuda) -> list[tuple[str, str]]:
    """Word what was found of CUDA, a row for each card."""
    built = "built in" if cuda.built_in else "not built in"
    words = [built if cuda.built_with is None else f"{built}, with CUDA {cuda.built_with}"]
    if cuda.driver is not None:
        words.append(f"the driver serves CUDA {cuda.driver}")
    if cuda.missing and cuda.built_in:
        words.append(cuda.missing)
    rows = [("CUDA kernels", "; ".join(words))]
    for card in cuda.cards:
        size, capability = common.human_size(card.memory), f"compute capability {card.compute_capability}"
        rows.append(
            (f"card {card.number}", f"{card.name}, {capability}, {card.multiprocessors} multiprocessors, {size}")
        )
    return rows


def _usable_processors() -> float:
    """Return how many processors this process may use: those of its affinity, less what a container's quota leaves."""
    usable = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        # Cgroup v2: microseconds of processor time in each period, or "max" in place of the first.
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return usable if quota == "max" else min(usable, int(quota) / int(period))
    except (OSError, ValueError):
        return usable


def _memory() -> tuple[int | None, int | None]:
    """Return the bytes of memory that there are and that are free to use, a container's limit taken into account."""
    if sys.platform == "darwin":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        total, available = fields["MemTotal"], fields["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return None, None
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no container, or "max"
        return total, available
    # In a container /proc/meminfo still counts the whole machine.
    return min(total, limit), min(available, max(0, limit - used))
