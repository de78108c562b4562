"""The commands that the guides name exist, with their options."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from headworks._cli.main import command_line

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent.parent
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:^|[`(| ])headworks ([a-z][^`|#>\n]*)", re.MULTILINE)


def named_in(text: str) -> list[str]:
    """The command lines after `headworks` in fences and in code spans."""
    fences = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
    indented = [line[4:] for line in text.splitlines() if line.startswith("    headworks ")]
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    spans = re.findall(r"`(headworks [^`]+)`", plain)
    lines = [line for block in fences for line in block.replace("\\\n", " ").splitlines()]
    found = [match for line in (*lines, *indented, *spans) for match in COMMAND.findall(line)]
    return [" ".join(command.split()) for command in found]


@cache
def whole_command_line() -> Any:
    return get_command(command_line())


def wrong_with(words: list[str]) -> str:
    """Return what the command line does not know, or nothing."""
    command = whole_command_line()
    given = list(words)
    while (below := getattr(command, "commands", None)) and given and given[0][0] != "-":
        if given[0].isupper():
            return ""  # a placeholder
        name = given.pop(0)
        if name not in below:
            return f"there is no command {name!r}"
        command = below[name]
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    known |= {"--help", "-h", "--version"}
    options = [word.partition("=")[0] for word in given if re.match(r"--?[a-z]", word)]
    return ", ".join(option for option in options if option not in known)


@pytest.mark.seconds
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_commands_and_options_exist(guide: Path) -> None:
    wrong = []
    for line in named_in(guide.read_text(encoding="utf-8")):
        try:
            words = shlex.split(line)
        except ValueError:  # the rest of a quotation
            words = line.split()
        if problem := wrong_with(words):
            wrong.append(f"headworks {line}: {problem}")
    assert not wrong


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert named_in("```sh\nheadworks load run --every 10m   # more\n```") == [
        "load run --every 10m"
    ]
    assert wrong_with(["load", "run", "--every", "10m"]) == ""
    assert wrong_with(["load", "walk"]) == "there is no command 'walk'"
    assert wrong_with(["load", "run", "--ever=10m"]) == "--ever"


def test_the_reference_of_the_attribute_names_every_member() -> None:
    from headworks.schema._governance import _MEMBERS

    page = (ROOT / "docs" / "reference" / "schema-attribute.md").read_text(encoding="utf-8")
    table = page.partition("## On a field")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(_MEMBERS)
