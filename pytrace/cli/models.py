"""``pytrace models``: list, fetch and check the models that are known by name."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from pytrace import processes
from pytrace.cli import common
from pytrace.cli.commands import Command, Output, argument, click_group, option
from pytrace.cli.completion import complete_model
from pytrace.errors import ModelFileError
from pytrace.models import registry
from pytrace.models.registry import rewritten
from pytrace.models.registry.downloads import TIMEOUT, PullProgress
from pytrace.models.registry.known_models import Role


class List(Command):
    """Show every known model, its profiles, and whether it is on this machine."""

    def run(self) -> Output:
        known = registry.catalog()
        statuses = [registry.status(model, known=known) for model in known.models]
        files = registry.rewritten_files()

        def show_text() -> None:
            common.print_records(
                statuses,
                (
                    ("NAME", lambda model: model.name),
                    ("ROLE", lambda model: model.role),
                    ("PROFILES", lambda model: ",".join(model.profiles) or "-"),
                    ("SIZE", lambda model: common.human_size(model.size)),
                    ("STATE", lambda model: model.state),
                    ("HASH", lambda model: "pinned" if model.pinned else "unpinned"),
                    ("REWRITTEN", lambda model: _choice(model.rewritten)),
                    ("LICENSE", lambda model: model.license),
                ),
            )
            if any(not model.pinned for model in statuses):
                common.print_text(
                    "\nunpinned: no hash is known beforehand; that of the first pull is recorded and held to."
                )
            for file in files:
                common.print_text(f"{file.source}: {_choice(file)}.")
            for profile in known.profiles:
                if profile.notes:
                    common.print_text(f"{profile.name}: {profile.notes}.")

        document = {"home": registry.home(), "models": statuses, "rewritten": files, "profiles": known.profiles}
        return Output(document, show_text)


def _choice(choice: rewritten.RewrittenStatus | None) -> str:
    if choice is None:
        return "-"
    if choice.state == "original kept":
        return "original is best"
    return choice.format if choice.state == "in use" else f"{choice.format} ({choice.state})"


class Pull(Command):
    """Fetch models; files that are here already are left alone, and so are choices of a weight format."""

    names: tuple[str, ...] = argument("NAME...", required=True, shell_complete=complete_model)
    repair: bool = option("Also hash existing files, and fetch damaged ones again.")
    fastest: bool = option(
        "Then convert language models to the weight format that is fastest here: see 'pytrace models fastest'."
    )
    timeout: float = option(
        "Timeout for each megabyte, or for a smaller file, in seconds.", gt=0, le=86_400, default=TIMEOUT
    )
    as_json: bool

    def run(self) -> Output:
        registry.select(self.names)  # a wrong name at the end must not be found after an hour of fetching
        progress = PullProgress(common.messages())
        processes.last_words("the same command goes on with what is here")
        pulled = [
            registry.pull(name, progress=progress, repair=self.repair, timeout=self.timeout) for name in self.names
        ]
        statuses = {status.name: status for each in pulled for status in each}  # profiles share models
        for name, status in statuses.items():
            good = status.rewritten is not None and status.rewritten.state in {"in use", "original kept"}
            if self.fastest and status.role == "language-model" and not good:
                record = _choose(name, None)
                if not self.as_json:
                    _print_record(record)
                statuses[name] = registry.status(registry.select([name])[0])
        lines = [
            f"{status.name}: {status.state}, {common.human_size(status.size)}, {status.directory}"
            f"{f', rewritten: {_choice(status.rewritten)}' if status.rewritten is not None else ''}"
            for status in statuses.values()
        ]
        return Output(list(statuses.values()), "\n".join(lines))


class Fastest(Command):
    """Rewrite a language model into the weight format that is fastest on this processor and keeps its answers.

    llama.cpp's own quantiser writes each format; all are measured, and those faster than the original are compared with it
    on labelled steps of reasoning chains until one chooses alike. From then on the name, or the file, stands for the
    rewritten file, which is kept in PYTRACE_HOME with a record of the figures; the original stays where it is.
    """

    name: str = argument("NAME|FILE", shell_complete=complete_model)
    undo: bool = option("Return to the original and remove the converted file.")
    threads: int | None = option("Threads to measure with.", ge=1, le=1024)

    def run(self) -> Output:
        if self.undo:
            undone = rewritten.undo(registry.folder_of_rewritten(self.name))
            text = f"{self.name}: {'back to the original' if undone else 'there is nothing to undo'}"
            return Output({"name": self.name, "undone": undone}, text)
        record = _choose(self.name, self.threads)
        return Output(record, lambda: _print_record(record))


def _choose(name: str, threads: int | None) -> rewritten.Record:
    from pytrace.engine.model_abilities import MeasuredAbilities, prompt_style
    from pytrace.evaluation import format_choice
    from pytrace.models.llama.llama_cpp import LlamaCppModel

    original = registry.resolve_original(name)  # rewriting what was rewritten would add up what each format loses
    # Judged as a method would ask this model, for whose answers the format must change nothing.
    style = prompt_style(name)
    with ExitStack() as opened:
        letters = MeasuredAbilities(
            name, lambda: opened.enter_context(LlamaCppModel(original.path, style=style, threads=threads))
        ).can("letters")
    return format_choice.choose(
        original.path,
        original.folder,
        style=style,
        scoring="letters" if letters else "pmi",
        threads=threads,
        progress=PullProgress(common.messages()),
    )


def _print_record(record: rewritten.Record) -> None:
    # A format that was refused before it was timed has no figures of its own.
    counts = sorted({count for figures in record.figures for count in figures.generation})
    common.print_table(
        (
            *("FORMAT", "SIZE", "PROMPT"),
            *(f"GEN {count}" for count in counts),
            *("SECONDS", "RIGHT", "AGREE", "VERDICT"),
        ),
        [
            (
                figures.format,
                common.human_size(figures.size),
                common.figure(figures.prompt, ".0f"),
                *(common.figure(figures.generation.get(count), ".0f") for count in counts),
                common.figure(figures.seconds, ".1f"),
                "-" if figures.correct is None else f"{figures.correct}/{figures.steps}",
                common.figure(figures.agreement, ".0%"),
                figures.verdict or "-",
            )
            for figures in record.figures
        ],
    )
    common.print_text(
        "\nPROMPT, GEN n: tokens a second, of prompts and of n sequences at once. SECONDS: the work of one question. RIGHT: "
        f"labelled steps. AGREE: choices equal to those of the {record.reference} weights."
    )
    common.print_text(f"{record.reason}.")


class Verify(Command):
    """Read every byte of models and compare hashes; without names, of all that are here."""

    names: tuple[str, ...] = argument("[NAME...]", shell_complete=complete_model)
    as_json: bool

    def run(self) -> None:
        known, names = registry.catalog(), self.names
        chosen = registry.select(names) if names else known.models
        if not names:
            # What is not here cannot be damaged.
            chosen = tuple(model for model in chosen if registry.status(model, known=known).state != "missing")
        statuses = [registry.status(model, hashed=True, known=known) for model in chosen]
        choices = [(status.name, status.rewritten) for status in statuses if status.rewritten is not None]
        # Rewritten files of models that are no name of the catalog but a path.
        files = () if names else registry.rewritten_files(hashed=True)
        choices += [(file.source, file) for file in files]
        rows: list[tuple[str, str, str, str]] = [
            (status.name, file.path, file.state, file.sha256 or "?") for status in statuses for file in status.files
        ]
        rows += [
            (name, choice.path, choice.state, choice.sha256 or "?")
            for name, choice in choices
            if choice.path is not None
        ]
        text = partial(common.print_table, ("MODEL", "FILE", "STATE", "SHA256"), rows)
        # Printed before the error that names what is damaged, which has the exit status.
        Output([*statuses, *files], text).show(as_json=self.as_json)
        damaged = [(status, file) for status in statuses for file in status.files if file.state != "ok"]
        bad = [f"{status.name}/{file.path} ({file.state})" for status, file in damaged]
        broken = " ".join(dict.fromkeys(status.name for status, _ in damaged))
        remedies = [f"'pytrace models pull --repair {broken}'"] if bad else []
        for name, choice in choices:
            if choice.state not in rewritten.HARMLESS:
                bad.append(f"{choice.path} ({choice.state})")
                remedies.append(f"'pytrace models fastest {name}'")
        if bad:
            raise ModelFileError(f"{', '.join(bad)}; run {' and '.join(remedies)}")


class Path(Command):
    """Print where a model is: a GGUF file for a language model, a directory for an encoder."""

    name: str = argument(shell_complete=complete_model)
    role: Role | None = option("Only this model of a profile.")

    def run(self) -> Output:
        name, role = self.name, self.role
        wanted = [model for model in registry.select([name]) if role is None or model.role == role]
        if not wanted:
            raise ModelFileError(f"{name!r} has no {str(role).replace('-', ' ')}; leave --role out to see what it has")
        paths = [(model, registry.resolve(model.name, model.role)) for model in wanted]
        document = [{"name": model.name, "role": model.role, "path": location} for model, location in paths]
        return Output(document, "\n".join(str(location) for _, location in paths))


models = click_group(
    """List, fetch and check the models that are known by name.

    NAME is a model, or a profile: a language model and an encoder that go together. Files are kept in PYTRACE_HOME
    (default: pytrace in the user's cache directory); once they are there nothing touches the network.
    """,
    *(List, Pull, Fastest, Verify, Path),
)
