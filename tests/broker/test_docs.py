"""docs/broker.md is true: options, configs and API versions are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from headworks._broker.topics import CONFIGS
from headworks._cli.broker import broker_app
from headworks._kafka.protocol import APIS

pytestmark = pytest.mark.unit

TEXT = (Path(__file__).parent.parent.parent / "docs" / "broker.md").read_text(encoding="utf-8")


def test_every_option_is_explained() -> None:
    group: Any = typer.main.get_command(broker_app)
    start = group.commands["start"]
    rows = set(re.findall(r"^\| `(--[a-z-]+)", TEXT, re.MULTILINE))
    assert rows == {param.opts[0] for param in start.params if param.name != "help"}


def test_every_config_is_explained_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z.]+)` \|.*\| (\S+) \|$", TEXT, re.MULTILINE))
    assert rows == {name: key.default or "(empty)" for name, key in CONFIGS.items()}


def test_every_api_is_listed_with_its_versions() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))?", TEXT, re.MULTILINE)
    listed = {int(key): (name, int(low), int(high or low)) for key, name, low, high in rows}
    assert listed == {
        api.key: (
            "".join(word.capitalize() for word in api.name.split("_")),
            max(api.minimum, api.served_from),
            api.maximum,
        )
        for api in APIS.values()
    }
