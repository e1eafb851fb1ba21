"""``pytrace models``: list, fetch and check the models that are known by name."""

from __future__ import annotations

import click

from pytrace.cli import common
from pytrace.errors import ModelFileError
from pytrace.models import registry
from pytrace.models.catalog import Role
from pytrace.models.progress import ConsoleProgress


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
        common.print_json({"home": registry.home(), "models": found, "profiles": known.profiles})
        return
    common.print_table(
        ("NAME", "ROLE", "PROFILES", "SIZE", "STATE", "HASH", "LICENSE"),
        [
            (
                item.name,
                item.role,
                ",".join(item.profiles) or "-",
                common.human_size(item.size),
                item.state,
                "pinned" if item.pinned else "unpinned",
                item.license,
            )
            for item in found
        ],
    )
    if any(not item.pinned for item in found):
        common.print_text()
        common.print_text("unpinned: no hash is known beforehand; that of the first pull is recorded and held to.")
    for profile in known.profiles:
        if profile.notes:
            common.print_text(f"{profile.name}: {profile.notes}.")


@models.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--repair", is_flag=True, help="Hash the files that are here too, and fetch damaged ones again.")
@common.json_option
def pull(*, names: tuple[str, ...], repair: bool, as_json: bool) -> None:
    """Fetch models; files that are here already are left alone."""
    registry.select(names)  # a wrong name at the end must not be found after an hour of fetching
    progress = ConsoleProgress(common.messages())
    found = {item.name: item for name in names for item in registry.pull(name, progress=progress, repair=repair)}
    if as_json:
        common.print_json(list(found.values()))
        return
    for item in found.values():
        common.print_text(f"{item.name}: {item.state}, {common.human_size(item.size)}, {item.directory}")


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
    if as_json:
        common.print_json(found)
    else:
        common.print_table(
            ("MODEL", "FILE", "STATE", "SHA256"),
            [(item.name, file.path, file.state, file.sha256 or "?") for item in found for file in item.files],
        )
    bad = [f"{item.name}/{file.path} ({file.state})" for item in found for file in item.files if file.state != "ok"]
    if bad:
        broken = " ".join(item.name for item in found if any(file.state != "ok" for file in item.files))
        message = f"{', '.join(bad)}; run 'pytrace models pull --repair {broken}'"
        raise ModelFileError(message)


@models.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["language-model", "encoder"]), help="Of a profile, only this one.")
@common.json_option
def path(*, name: str, role: Role | None, as_json: bool) -> None:
    """Print where a model is: a GGUF file for a language model, a directory for an encoder."""
    wanted = [model for model in registry.select([name]) if role is None or model.role == role]
    if not wanted:
        message = f"{name!r} has no {str(role).replace('-', ' ')}; leave --role out to see what it has"
        raise ModelFileError(message)
    paths = [(model, registry.resolve(model.name, model.role)) for model in wanted]
    if as_json:
        common.print_json([{"name": model.name, "role": model.role, "path": place} for model, place in paths])
        return
    for _, place in paths:
        common.print_text(str(place))
