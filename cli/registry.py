"""`headworks registry start`: the schema registry as a server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.output import Format, FormatOption
from headworks.errors import UsageError
from headworks.settings import resolve

__all__ = ["registry_app"]

registry_app = typer.Typer(no_args_is_help=True, help="The schema registry.")


@registry_app.callback()
def _registry() -> None:
    """The schema registry."""


@registry_app.command()
def start(
    listen: Annotated[
        str | None, typer.Option(help="where to listen, HOST:PORT (setting registry)")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="sqlite:///FILE or postgresql://.. (registry.db in setting data_dir)"),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="listen beyond this machine, for everybody who can reach it"
        ),
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Serve a store until SIGTERM or Ctrl-C."""
    from headworks.service import end_with_parent

    end_with_parent()
    address = listen or resolve("registry").removeprefix("http://").rstrip("/")
    from registry.server import bind, serve

    sock = bind(address, insecure=insecure)

    def ready(at: str) -> None:
        if format is Format.JSON:
            line = json.dumps({"service": "registry", "listen": at})
        else:
            line = f"registry: serving http://{at}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    serve(sock, store or _default_store(), ready)


def _default_store() -> str:
    folder = Path(resolve("data_dir"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the data folder {folder}: {error.strerror}",
            fix="set data_dir, or name the store with --store",
        ) from None
    return f"sqlite:///{(folder / 'registry.db').resolve()}"
