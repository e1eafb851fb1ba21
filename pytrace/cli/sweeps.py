"""METHODs times settings times seeds: the options ``--sweep`` and ``--seeds``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytrace.errors import InputError

if TYPE_CHECKING:
    from pytrace.methods.catalog import MethodName


def expand(
    methods: Sequence[MethodName], sweeps: Sequence[str], seeds: str | None, llm: str, settings: Sequence[str] = ()
) -> tuple[MethodName, ...]:
    """Return every method with every combination of the values of the swept settings that it has and does not name itself."""
    # In the order of the methods; the last option's values change fastest, and seeds faster. No two are the same.
    from pytrace.methods.base import setting_name
    from pytrace.methods.catalog import MethodName, default_settings, method_settings

    swept = _values(sweeps, seeds)
    for setting in settings:
        if setting_name(setting) in swept:
            raise InputError(f"{setting_name(setting)} is both set ({setting}) and swept; leave one of them out")
    used: set[str] = set()
    expanded: dict[tuple[str, frozenset[tuple[str, str]]], MethodName] = {}
    for method in methods:
        named = {setting_name(setting) for setting in method.overrides}
        fields = default_settings(method.name, llm).__struct_fields__
        open_values = {name: values for name, values in swept.items() if name in fields and name not in named}
        used |= open_values.keys()
        for values in itertools.product(*open_values.values()):
            added = (f"{name}={value}" for name, value in zip(open_values, values, strict=True))
            variant = MethodName(method.name, (*method.overrides, *added))
            method_settings(variant, llm)  # a wrong value must not be found after hours of asking
            expanded.setdefault(identity(variant), variant)  # a METHOD that was named in full may come again of a sweep
    for name in swept:
        if name not in used:
            option = "--seeds" if name == "seed" and seeds is not None else f"--sweep {name}"
            among = ", ".join(dict.fromkeys(method.label for method in methods))
            raise InputError(
                f"{option} changes nothing: none of {among} has a setting {name!r} that it does not name itself"
            )
    return tuple(expanded.values())


def identity(method: MethodName) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return what two methods have in common that are the same: name and settings, in whatever order and spelling."""
    from pytrace.methods.base import setting_name

    return method.name, frozenset(
        {setting_name(setting): setting.partition("=")[2].strip() for setting in method.overrides}.items()
    )


def baseline_label(baseline: MethodName | None, methods: Sequence[MethodName]) -> str | None:
    """Return the label that a baseline has among the methods."""
    if baseline is None:
        return None
    for method in methods:
        if identity(method) == identity(baseline):
            return method.label
    raise InputError(
        f"the baseline {baseline.label} is none of the methods; choose one of {', '.join(method.label for method in methods)}"
    )


def _values(sweeps: Sequence[str], seeds: str | None) -> dict[str, tuple[str, ...]]:
    """Read the options: the values of each setting, in the order given and each once."""
    from pytrace.methods.base import setting_name

    swept: dict[str, tuple[str, ...]] = {}
    for sweep in sweeps:
        name = setting_name(sweep)
        values = [value.strip() for value in sweep.partition("=")[2].split(",")]
        if not name or not all(values):
            raise InputError(f"--sweep {sweep!r} is not NAME=V1,V2,…; write top=2,4,8, for instance")
        if name in swept:
            raise InputError(f"--sweep {name} is given twice; give all its values at once")
        swept[name] = tuple(dict.fromkeys(values))  # a value that is written twice is asked once
    if seeds is not None:
        # isdigit() alone takes ² as well, which int() does not.
        numbers = [number.strip() for number in seeds.split(",")]
        if not all(number.isascii() and number.isdigit() for number in numbers):
            raise InputError(f"--seeds {seeds!r} is no list of whole numbers from 0 on; write 0,1,2, for instance")
        if "seed" in swept:
            raise InputError("--sweep seed and --seeds say the same; leave one of them out")
        # 007 is the seed 7, and must not be asked twice.
        swept["seed"] = tuple(dict.fromkeys(str(int(number)) for number in numbers))
    return swept
