"""Which instruction set runs is what was asked for, or nothing runs: in a process of its own, because it is chosen at load."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from pytrace import _core

ISAS = _core.available_isas()
USES = {
    "top_k": "kernels.top_k([[1.0, 2.0]], [[3.0, 4.0]], 1)",
    "similarity": "kernels.similarity.similarity([[1.0, 2.0]], [[3.0, 4.0]])",
    "partial_ratio": "kernels.partial_ratio('ada', 'ada foah')",
    "cdist": "kernels.cdist(['ada'], ['ada foah'])",
    "needleman_wunsch": "alignment.needleman_wunsch('ada', 'foah')",
    "alignment_score": "alignment.alignment_score('ada', 'foah')",
    "align_batch": "alignment.align_batch(['ada'], ['foah'])",
    "personalised_pagerank": "kernels.personalised_pagerank([0, 1], [0], [0])",
    "max_sim": "kernels.max_sim([[1.0, 2.0]], [[3.0, 4.0]], document_offsets=[0, 1])",
    "embedding_bag": "kernels.embedding_bag([[1.0, 2.0]], [0], [0, 1])",
    "expand": "kernels.expand([0.0], [[1.0, 2.0]], [False], beams=1, chains=1)",
}


def python(code: str, isa: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTRACE_ISA"}
    if isa is not None:
        environment["PYTRACE_ISA"] = isa
    imports = "from pytrace import _core, kernels\nfrom pytrace.kernels import alignment\n"
    command = [sys.executable, "-c", imports + code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("isa", ISAS)
def test_the_instruction_set_that_the_environment_names_runs(isa):
    report = python(f"print(_core.active_isa(), repr(_core.active_isa_error())); {'; '.join(USES.values())}", isa)
    assert report.returncode == 0, report.stderr
    assert report.stdout == f"{isa} ''\n"


@pytest.mark.parametrize("isa", [None, ""])
def test_the_best_instruction_set_runs_where_none_is_named(isa):
    assert python("print(_core.active_isa())", isa).stdout == f"{ISAS[-1]}\n"


def test_this_machine_has_the_instruction_sets_of_its_kind():
    expected = {"x86_64": "baseline", "aarch64": "neon"}.get(platform.machine(), "baseline")
    assert ISAS[0] == expected
    assert set(ISAS) <= {"baseline", "avx2", "avx512", "neon"}


@pytest.mark.parametrize("isa", ["frob", "AVX2", " avx2", "neon" if platform.machine() == "x86_64" else "avx2"])
@pytest.mark.parametrize("use", USES)
def test_a_kernel_refuses_to_run_where_the_named_instruction_set_is_missing(isa, use):
    result = python(f"try: {USES[use]}\nexcept ValueError as error: print(error)", isa)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"PYTRACE_ISA: instruction set '{isa}' is not available here; choose one of: ")
    assert all(name in result.stdout for name in ISAS)


def test_naming_an_available_one_ends_the_refusal():
    result = python(f"_core.set_active_isa('{ISAS[0]}')\nprint({USES['top_k']}[0])", "frob")
    assert result.stdout == "[[11.]]\n", result.stderr


@pytest.mark.parametrize("isa", ["frob", ISAS[0]])
def test_doctor_says_which_runs_and_what_could_not_be_obeyed(isa, tmp_path):
    code = "import sys\nfrom pytrace.cli import main\nmain(['doctor', '--json'])"
    environment = os.environ | {"PYTRACE_HOME": str(tmp_path), "PYTRACE_ISA": isa}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    assert report["instruction_sets"] == ISAS
    problems = [problem for problem in report["problems"] if "PYTRACE_ISA" in problem["what"]]
    if isa == "frob":
        assert len(problems) == 1
        assert "'frob' is not available here" in problems[0]["what"]
        assert "unset it" in problems[0]["remedy"]
    else:
        assert not problems
        assert report["active_instruction_set"] == isa


def test_no_function_hides_the_module_of_its_name() -> None:
    import types

    from pytrace import kernels

    for name in ("alignment", "beam", "fuzzy", "set_cover", "similarity"):
        assert isinstance(getattr(kernels, name), types.ModuleType), name
    assert kernels.similarity.top_k is kernels.top_k
    assert all(callable(getattr(kernels, name)) or name == "Metric" for name in kernels.__all__)
