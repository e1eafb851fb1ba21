"""``pytrace bundle``: what installs pytrace where there is no network."""

from __future__ import annotations

from pathlib import Path

from pytrace.bundle import EXTRAS, MODELS, make_bundle
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, option
from pytrace.cli.completion import complete_model


class Bundle(Command):
    """Collect wheels, models and an installing script in a folder, for machines without a network.

    There, 'sh DIR/install.sh' checks every file, installs with Python alone, and answers a question. It is for machines of the
    same version of Python and the same architecture. llama.cpp is compiled for any processor with AVX2.
    """

    out: Path = option("Folder to create; it must be empty or not exist.", required=True, metavar="DIR")
    extra: tuple[str, ...] = option(f"An extra of pytrace. May be repeated.  [default: {', '.join(EXTRAS)}]")
    model: tuple[str, ...] = option(
        f"A model or profile, by name. May be repeated.  [default: {', '.join(MODELS)}]", shell_complete=complete_model
    )
    no_models: bool = option("Leave models out.")
    source: str | None = option(
        "What to install: a wheel, a checkout or a requirement.  [default: what this pytrace was installed from]",
        metavar="WHEEL|DIR|REQUIREMENT",
    )
    find_links: Path | None = option("Take packages only from this folder of wheels.", metavar="DIR")
    native: bool = option("Compile llama.cpp for this machine's CPU; the bundle then needs machines of the same kind.")

    def run(self) -> Output:
        bundle = make_bundle(
            self.out,
            extras=self.extra or EXTRAS,
            models=() if self.no_models else self.model or MODELS,
            source=self.source,
            native=self.native,
            find_links=self.find_links,
            on_stage=lambda what: common.remark(f"collecting {what}"),
        )
        own = {name: size for name, size in bundle.wheels.items() if name.startswith("pytrace_rag")}
        sizes = [
            *((name, size) for name, size in own.items()),
            (f"{len(bundle.wheels) - len(own)} wheels of others", sum(bundle.wheels.values()) - sum(own.values())),
            *((f"model {name}", size) for name, size in bundle.models.items()),
            ("in all", bundle.size),
        ]
        lines = [f"{common.human_size(size):>9}  {name}" for name, size in sizes]
        lines.append(
            f"for Python {bundle.python} on {bundle.machine}, {bundle.libc}; copy it there, and run 'sh {self.out.name}/install.sh'"
        )
        return Output(bundle, "\n".join(lines))
