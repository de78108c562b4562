"""The options of every command, held to a list, and the style of their help texts.

The list has names, defaults, types, and ranges. It is changed by hand, together with the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from headworks._cli.main import command_line

pytestmark = pytest.mark.unit

_LIST = Path(__file__).parent / "golden" / "options.json"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield name, command
        return
    for verb, subcommand in subcommands.items():
        yield from commands(subcommand, f"{name} {verb}")


def described(parameter: Any) -> dict[str, Any]:
    default = parameter.default
    known = {
        "kind": type(parameter).__name__.removeprefix("Typer").lower(),
        "names": [*parameter.opts, *parameter.secondary_opts],
        "type": getattr(parameter.type_descriptor.annotation, "__name__", "?"),
        "default": default if isinstance(default, bool | int | float | None) else str(default),
        "min": parameter.min,
        "max": parameter.max,
        "required": parameter.required,
        "multiple": getattr(parameter, "multiple", False),
        "nargs": parameter.nargs,
        "envvar": parameter.envvar,
    }
    return {name: value for name, value in known.items() if repr(value) not in ("None", "False")}


def options() -> dict[str, list[dict[str, Any]]]:
    root = typer.main.get_command(command_line())
    return {
        name: sorted((described(one) for one in command.params), key=lambda one: one["names"])
        for name, command in commands(root, "headworks")
    }


def test_the_commands_have_the_options_of_the_list() -> None:
    known = json.loads(_LIST.read_text(encoding="utf-8"))
    found = json.loads(json.dumps(options()))
    assert found.keys() == known.keys()
    for name, listed in known.items():
        assert found[name] == listed, name


def test_help_texts_have_one_style() -> None:
    """Options: small letter, no full stop. Commands: a sentence in the imperative."""
    root = typer.main.get_command(command_line())
    for name, command in commands(root, "headworks"):
        assert re.match(r"[A-Z][a-z]+ .*\.$", command.help.partition("\n")[0]), name
        for parameter in command.params:
            help_text = parameter.help
            assert help_text, (name, parameter.name)
            assert not help_text.endswith("."), (name, help_text)
            assert not re.match(r"[A-Z][a-z]", help_text), (name, help_text)
