"""``pytrace models``: list, fetch and check the models that are known by name."""

from __future__ import annotations

import click

from pytrace.cli import common
from pytrace.errors import ModelFileError
from pytrace.models import registry
from pytrace.models.registry import rewritten
from pytrace.models.registry.known_models import Role
from pytrace.models.registry.progress import PullProgress


@click.group()
def models() -> None:
    """List, fetch and check the models that are known by name.

    NAME is a model, or a profile: a language model and an encoder that go together. Files are kept in PYTRACE_HOME
    (default: pytrace in the user's cache directory); once they are there nothing touches the network.
    """


@models.command("list")
@common.json_option
def list_models(*, as_json: bool) -> None:
    """Show every known model, its profiles, and whether it is on this machine."""
    known = registry.catalog()
    found = [registry.status(model, known=known) for model in known.models]
    if as_json:
        own = registry.rewritten_files()
        common.print_json({"home": registry.home(), "models": found, "rewritten": own, "profiles": known.profiles})
        return
    common.print_table(
        ("NAME", "ROLE", "PROFILES", "SIZE", "STATE", "HASH", "REWRITTEN", "LICENSE"),
        [
            (
                item.name,
                item.role,
                ",".join(item.profiles) or "-",
                common.human_size(item.size),
                item.state,
                "pinned" if item.pinned else "unpinned",
                _choice(item.rewritten),
                item.license,
            )
            for item in found
        ],
    )
    if any(not item.pinned for item in found):
        common.print_text()
        common.print_text("unpinned: no hash is known beforehand; that of the first pull is recorded and held to.")
    for item in registry.rewritten_files():
        common.print_text(f"{item.source}: {_choice(item)}.")
    for profile in known.profiles:
        if profile.notes:
            common.print_text(f"{profile.name}: {profile.notes}.")


def _choice(item: rewritten.RewrittenStatus | None) -> str:
    if item is None:
        return "-"
    if item.state == "original kept":
        return "original is best"
    return item.format if item.state == "in use" else f"{item.format} ({item.state})"


@models.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--repair", is_flag=True, help="Hash the files that are here too, and fetch damaged ones again.")
@click.option(
    "--fastest",
    "rewrite",
    is_flag=True,
    help="Then rewrite language models into the weight format that is fastest here: see 'pytrace models fastest'.",
)
@common.json_option
def pull(*, names: tuple[str, ...], repair: bool, rewrite: bool, as_json: bool) -> None:
    """Fetch models; files that are here already are left alone, and so are choices of a weight format."""
    registry.select(names)  # a wrong name at the end must not be found after an hour of fetching
    progress = PullProgress(common.messages())
    found = {item.name: item for name in names for item in registry.pull(name, progress=progress, repair=repair)}
    for name, item in found.items():
        good = item.rewritten is not None and item.rewritten.state in {"in use", "original kept"}
        if rewrite and item.role == "language-model" and not good:
            record = _choose(name, None)
            if not as_json:
                _print_record(record)
            found[name] = registry.status(registry.select([name])[0])
    if as_json:
        common.print_json(list(found.values()))
        return
    for item in found.values():
        choice = f", rewritten: {_choice(item.rewritten)}" if item.rewritten is not None else ""
        common.print_text(f"{item.name}: {item.state}, {common.human_size(item.size)}, {item.directory}{choice}")


@models.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--undo", is_flag=True, help="Go back to the original, and remove the rewritten file.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads to measure with.")
@common.json_option
def fastest(*, name: str, undo: bool, threads: int | None, as_json: bool) -> None:
    """Rewrite a language model into the weight format that is fastest on this processor and keeps its answers.

    llama.cpp's own quantiser writes each format; all are measured, and those faster than the original are compared with it
    on labelled steps of reasoning chains until one chooses alike. From then on the name, or the file, stands for the
    rewritten file, which is kept in PYTRACE_HOME with a record of the figures; the original stays where it is.
    """
    if undo:
        undone = rewritten.undo(registry.folder_of_rewritten(name))
        if as_json:
            common.print_json({"name": name, "undone": undone})
        else:
            common.print_text(f"{name}: {'back to the original' if undone else 'there is nothing to undo'}")
        return
    record = _choose(name, threads)
    if as_json:
        common.print_json(record)
    else:
        _print_record(record)


def _choose(name: str, threads: int | None) -> rewritten.Record:
    from pytrace.engine.loading import settings_name
    from pytrace.evaluation import format_choice
    from pytrace.methods.catalog import method_settings, prompt_style

    original = registry.resolve_original(name)
    known = settings_name(name)
    scoring = method_settings("trace", known).scoring
    return format_choice.choose(
        original.path,
        original.folder,
        style=prompt_style(known),
        scoring="letters" if scoring in {"letters", "black-box"} else "pmi",
        threads=threads,
        progress=PullProgress(common.messages()),
    )


def _print_record(record: rewritten.Record) -> None:
    def speed(value: float | None) -> str:
        return "-" if value is None else f"{value:.0f}"

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    counts = sorted({count for item in record.figures for count in item.generation})
    common.print_table(
        (
            "FORMAT",
            "SIZE",
            "PROMPT",
            *(f"GEN {n}" for n in counts),
            "SECONDS",
            "RIGHT",
            "AGREE",
            "FIRST",
            "DIFF",
            "VERDICT",
        ),
        [
            (
                item.format,
                common.human_size(item.size),
                speed(item.prompt),
                *(speed(item.generation.get(count)) for count in counts),
                "-" if item.seconds is None else f"{item.seconds:.1f}",
                "-" if item.correct is None else f"{item.correct}/{item.steps}",
                share(item.agreement),
                share(item.first_tokens),
                "-" if item.difference is None else f"{item.difference:.3f}",
                item.verdict or "-",
            )
            for item in record.figures
        ],
    )
    common.print_text()
    common.print_text(
        "PROMPT, GEN n: tokens a second, of prompts and of n sequences at once. SECONDS: the work of one question. RIGHT: "
        f"labelled steps. AGREE, FIRST, DIFF: choices and first tokens equal to, and log-probabilities away from, the "
        f"{record.reference} weights'."
    )
    common.print_text(f"{record.reason}.")


@models.command()
@click.argument("names", metavar="[NAME...]", nargs=-1)
@common.json_option
def verify(*, names: tuple[str, ...], as_json: bool) -> None:
    """Read every byte of models and compare hashes; without names, of all that are here."""
    known = registry.catalog()
    chosen = registry.select(names) if names else known.models
    if not names:
        chosen = tuple(model for model in chosen if registry.status(model, known=known).state != "missing")
    found = [registry.status(model, hashed=True, known=known) for model in chosen]
    choices = [(item.name, item.rewritten) for item in found if item.rewritten is not None]
    own = () if names else registry.rewritten_files(hashed=True)
    choices += [(item.source, item) for item in own]
    if as_json:
        common.print_json([*found, *own])
    else:
        rows: list[tuple[str, str, str, str]] = [
            (item.name, file.path, file.state, file.sha256 or "?") for item in found for file in item.files
        ]
        rows += [(name, item.path, item.state, item.sha256 or "?") for name, item in choices if item.path is not None]
        common.print_table(("MODEL", "FILE", "STATE", "SHA256"), rows)
    bad = [f"{item.name}/{file.path} ({file.state})" for item in found for file in item.files if file.state != "ok"]
    broken = " ".join(item.name for item in found if any(file.state != "ok" for file in item.files))
    remedies = [f"'pytrace models pull --repair {broken}'"] if bad else []
    for name, item in choices:
        if item.state not in rewritten.HARMLESS:
            bad.append(f"{item.path} ({item.state})")
            remedies.append(f"'pytrace models fastest {name}'")
    if bad:
        raise ModelFileError(f"{', '.join(bad)}; run {' and '.join(remedies)}")


@models.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["language-model", "encoder"]), help="Of a profile, only this one.")
@common.json_option
def path(*, name: str, role: Role | None, as_json: bool) -> None:
    """Print where a model is: a GGUF file for a language model, a directory for an encoder."""
    wanted = [model for model in registry.select([name]) if role is None or model.role == role]
    if not wanted:
        raise ModelFileError(f"{name!r} has no {str(role).replace('-', ' ')}; leave --role out to see what it has")
    paths = [(model, registry.resolve(model.name, model.role)) for model in wanted]
    if as_json:
        common.print_json([{"name": model.name, "role": model.role, "path": place} for model, place in paths])
        return
    for _, place in paths:
        common.print_text(str(place))
