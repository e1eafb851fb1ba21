"""A bundle is whole or not there, and its script installs it without a network, or says in a sentence why it does not.

pip itself and the script are the real ones; of pytrace there is a wheel with a program alone, since what it needs would have to be
fetched. `make bundle-check` installs the whole of it.
"""

from __future__ import annotations

import ensurepip
import importlib.metadata
import shutil
import subprocess
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from pytrace import __version__
from pytrace.bundle import Bundle, _small_model, make_bundle
from pytrace.cli import common, program
from pytrace.errors import InputError, MissingDependencyError, PytraceError
from pytrace.models import registry

NAME = f"pytrace_rag-{__version__}"
FILES = {
    "stub_program.py": f"def main():\n    print('pytrace {__version__}')\n",
    f"{NAME}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: pytrace-rag\nVersion: {__version__}\n",
    f"{NAME}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{NAME}.dist-info/entry_points.txt": "[console_scripts]\npytrace = stub_program:main\n",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that pip needs for this."""
    folder = tmp_path_factory.mktemp("wheels")
    record = "".join(f"{name},,\n" for name in [*FILES, f"{NAME}.dist-info/RECORD"])
    with zipfile.ZipFile(folder / f"{NAME}-py3-none-any.whl", "w") as wheel:
        for name, content in {**FILES, f"{NAME}.dist-info/RECORD": record}.items():
            wheel.writestr(name, content)
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    pips = [*bundled.glob("pip-*.whl"), *Path("/usr/share/python-wheels").glob("pip-*.whl")]  # Debian has it there
    if not pips:
        pytest.skip("this Python brings no wheel of pip")
    shutil.copy(pips[0], folder)
    return folder


def made(out: Path, wheels: Path, *models: str) -> Bundle:
    return make_bundle(
        out, extras=(), models=models, source=str(wheels / f"{NAME}-py3-none-any.whl"), find_links=wheels
    )


@pytest.fixture(scope="module")
def bundle(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundles") / "bundle"
    made(out, wheels)
    return out


def install(bundle: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script where there is no network interface, as far as this system lets us."""
    alone = ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        alone = []
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nowhere", "PYTHON": shutil.which("python3") or ""}
    return subprocess.run(
        [*alone, "sh", str(bundle / "install.sh"), *arguments],
        env={**variables, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_installs_a_program_that_runs(bundle: Path, tmp_path: Path) -> None:
    done = install(bundle, str(tmp_path / "here"))
    assert done.returncode == 0, done.stderr
    assert f"pytrace {__version__}" in done.stdout
    told = subprocess.run([tmp_path / "here" / "pytrace"], capture_output=True, text=True, check=True)
    assert told.stdout == f"pytrace {__version__}\n"


def test_a_bundle_says_what_it_holds(bundle: Path, wheels: Path) -> None:
    names = {path.name for path in wheels.iterdir()}
    assert {path.name for path in (bundle / "wheels").iterdir()} == names
    listed = (bundle / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert {line.split("  ")[1] for line in listed} == {
        path.relative_to(bundle).as_posix()
        for path in bundle.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    for line in listed:
        digest, name = line.split("  ")
        assert sha256((bundle / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("name", ["install.sh", "example/lisk.md"])
def test_a_damaged_file_is_found_before_anything_is_installed(bundle: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    with (copy / name).open("a", encoding="utf-8") as stream:
        stream.write("#\n")
    done = install(copy, str(tmp_path / "here"))
    assert done.returncode == 1
    assert "files of the bundle are damaged or missing" in done.stderr
    assert name in done.stdout + done.stderr
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("BUNDLE_PYTHON='3.1'", "the bundle is for Python and machine '3.1 "),
        ("BUNDLE_MACHINE='vax'", " vax', and "),
        ("BUNDLE_LIBC='glibc 9.99'", "the bundle needs glibc 9.99, and this machine's C library is older"),
    ],
)
def test_a_bundle_for_other_machines_is_refused(bundle: Path, tmp_path: Path, line: str, said: str) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    file = copy / "bundle.env"
    before = file.read_bytes()
    file.write_bytes(before + f"{line}\n".encode())
    sums = (copy / "SHA256SUMS").read_text(encoding="utf-8")
    sums = sums.replace(sha256(before).hexdigest(), sha256(file.read_bytes()).hexdigest())
    (copy / "SHA256SUMS").write_text(sums, encoding="utf-8")
    done = install(copy, str(tmp_path / "here"))
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "here").exists()


def test_nothing_that_is_there_is_touched(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    done = install(bundle, str(tmp_path / "here"))
    assert done.returncode == 1
    assert "is there already" in done.stderr
    done = install(bundle, str(tmp_path / "new"), PYTHON="/no/python")
    assert done.returncode == 1
    assert "/no/python does not run" in done.stderr
    assert not (tmp_path / "new").exists()


def test_what_pip_cannot_install_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    (wheel,) = (copy / "wheels").glob("pytrace_rag-*.whl")
    wheel.unlink()
    sums = (copy / "SHA256SUMS").read_text(encoding="utf-8").splitlines(keepends=True)
    (copy / "SHA256SUMS").write_text("".join(line for line in sums if wheel.name not in line), encoding="utf-8")
    done = install(copy, str(tmp_path / "here"))
    assert done.returncode != 0
    assert "nothing was installed" in done.stderr
    assert not (tmp_path / "here").exists()


def test_a_bundle_that_cannot_be_made_is_not_there(
    wheels: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(PytraceError, match="pip could not collect the wheels"):
        make_bundle(tmp_path / "out", extras=(), models=(), source="pytrace-rag", find_links=tmp_path / "none")
    assert "pytrace-rag" in capfd.readouterr().err  # pip's own words
    with pytest.raises(InputError, match=r"no extra 'gpu'; choose of onnx, cpu"):
        make_bundle(tmp_path / "out", extras=("gpu",))
    with pytest.raises(PytraceError, match="nonesuch"):
        made(tmp_path / "out", wheels, "nonesuch")
    assert [path.name for path in tmp_path.iterdir()] == ["none"]
    (tmp_path / "none" / "file").touch()
    assert common.run(program, ["bundle", "--out", str(tmp_path / "none")]) == 2
    assert "is there already; name a folder that is not, or is empty" in capfd.readouterr().err


@pytest.mark.models
@pytest.mark.usefixtures("tiny_models")
def test_models_come_as_they_are_pinned(wheels: Path, tmp_path: Path) -> None:
    bundle = made(tmp_path / "bundle", wheels, "minilm-l6-int8")
    (model,) = registry.select(["minilm-l6-int8"])
    for file in model.files:
        content = (tmp_path / "bundle" / "home" / "models" / model.name / file.path).read_bytes()
        assert sha256(content).hexdigest() == file.sha256
    assert bundle.models["minilm-l6-int8"] >= sum(file.size or 0 for file in model.files) > 20_000_000


def test_what_runs_from_a_folder_is_told_to_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", unknown)
    with pytest.raises(MissingDependencyError, match="runs from a folder and is not installed"):
        make_bundle(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_checkout_s_small_model_goes_into_the_bundle(tmp_path: Path) -> None:
    assert _small_model(tmp_path) == []  # it is not installed from a release here
    (tmp_path / "packaging" / "edge").mkdir(parents=True)
    assert _small_model(tmp_path) == [str(tmp_path / "packaging" / "edge")]
