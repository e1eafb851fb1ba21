"""The emulated card finds what it says it finds: kernels that are wrong on purpose, each beside its right twin."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.conftest import emulation_program

# What is found whatever the build, and what only a sanitizer sees.
ALWAYS = {
    "missing_barrier": "not true",
    "different_barriers": "different barriers",
    "barrier_and_collective": "deadlock",
    "lane_left": "not there",
    "lane_not_in_mask": "does not take part",
    "masks_disagree": "masks",
    "too_much_shared": "bytes of shared memory",
    "copy_not_awaited": "not true",
    "misaligned": "no multiple",
    "not_initialised": "not true",
    "too_many_threads": "cudaErrorInvalidValue",
    "event_not_awaited": "not true",
    "host_pointer_as_device": "cudaErrorInvalidValue",
}
WITH = {
    "none": {},
    "address": {"past_shared": "heap-buffer-overflow", "past_workspace": "use-after-poison"},
    "thread": dict.fromkeys(
        ("missing_barrier", "missing_warp_barrier", "lost_additions", "copy_not_awaited"), "data race"
    ),
}
EVERY = sorted({name for found in (ALWAYS, *WITH.values()) for name in found})


def faults(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program that `make emulation` builds."""
    program = emulation_program("faults")
    environment = os.environ | {"TSAN_OPTIONS": "exitcode=66:atexit_sleep_ms=0"}
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("name", EVERY)
def test_a_right_kernel_is_left_alone(name):
    result = faults(name, "right")
    assert (result.returncode, result.stdout) == (0, "nothing found\n"), result.stderr


@pytest.mark.parametrize("name", EVERY)
def test_a_wrong_kernel_is_found(name):
    sanitizer = faults("sanitizer").stdout.strip()
    expected = WITH[sanitizer].get(name) or ALWAYS.get(name)
    if expected is None:
        pytest.skip(f"{name} is found by a sanitizer alone, and this build has {sanitizer}")
    result = faults(name, "wrong")
    assert expected in result.stdout + result.stderr
    # The address sanitizer ends the process; the thread sanitizer sets its status as TSAN_OPTIONS says.
    assert (result.returncode != 0) == (name in WITH[sanitizer])


def test_an_unknown_kernel_is_no_success():
    assert faults("no_such_kernel", "right").returncode == 1
