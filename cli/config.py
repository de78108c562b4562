"""`headworks config show`: every setting, its value, and the source of the value."""

from __future__ import annotations

import typer

from headworks._cli.output import Format, FormatOption, print_json, print_table
from headworks._settings import SETTINGS, Resolved, lookup

config_app = typer.Typer(no_args_is_help=True, help="Show the settings and their sources.")


@config_app.callback()
def config() -> None:
    """Show the settings and their sources."""


@config_app.command()
def show(format: FormatOption = Format.TEXT) -> None:
    """Show every setting: its value, its source, and its meaning."""
    found = [(setting, lookup(name)) for name, setting in SETTINGS.items()]
    if format is Format.JSON:
        print_json({s.name: {"value": _shown(r), "source": r.source} for s, r in found})
        return
    rows = [(s.name, _shown(r) or "-", r.source, s.meaning) for s, r in found]
    print_table(("setting", "value", "source", "meaning"), rows)


def _shown(setting: Resolved) -> str | None:
    """Return a setting's value, with passwords and credentials hidden."""
    from headworks.registry_client._credentials import redacted

    if setting.value is None:
        return None
    if setting.name == "password":
        return "***"
    return redacted(setting.value) if setting.name == "registry" else setting.value
