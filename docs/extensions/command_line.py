"""The program ``pytrace`` as sphinx-click wants it: with all its commands loaded, each by its name."""

import click

from pytrace import cli

program = cli.program
_context = click.Context(program, info_name="pytrace")
for _name in program.list_commands(_context):
    _command = program.get_command(_context, _name)
    assert _command is not None
    _command.name = _name
    program.add_command(_command)
