"""`headworks`: every command by noun and verb, and how errors become exit codes.

Exit codes: 0 success, 1 findings, 2 usage, 3 unreachable service, 4 refused by a service
(headworks/errors.py), and 130 interrupted.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from headworks import __version__
from headworks._cli.command_group import SentenceGroup
from headworks.errors import HeadworksError, UsageError

_OURS = frozenset({"consumer_sdk", "hadoop_loader", "headworks", "producer_sdk"})
_COLLECT_AFTER_OBJECTS = 50_000
_EXTRAS = {"load": "hadoop", "sql": "hadoop", "demo": "server,hadoop,java,demo"}  # else: server
_HELP = "A schema-governed event pipeline: broker, registry, gate, SDKs, Hadoop loader, audit."
_WRONG_PATHS = {
    errno.ENAMETOOLONG: "choose a shorter one",
    errno.ELOOP: "choose another, or remove one of the symbolic links",
}
_LOOP = "Symlink loop from "  # with what pathlib reports one before Python 3.13
_NOUNS = {
    "schema": "headworks._cli.schema:schema_app",
    "broker": "headworks._cli.broker:broker_app",
    "log": "headworks._cli.log:log_app",
    "registry": "headworks._cli.registry:registry_app",
    "console": "headworks._cli.console:console_app",
    "topic": "headworks._cli.topic:topic_app",
    "group": "headworks._cli.group:group_app",
    "dead-letter": "headworks._cli.dead_letter:dead_letter_app",
    "load": "headworks._cli.load:load_app",
    "audit": "headworks._cli.audit:audit_app",
    "user": "headworks._cli.user:user_app",
    "config": "headworks._cli.config:config_app",
}
_VERBS = {
    "up": "headworks._cli.up:up",
    "demo": "headworks._cli.demo.command:demo",
    "doctor": "headworks._cli.doctor.command:doctor",
    "gen": "headworks._cli.gen:gen",
    "produce": "headworks._cli.produce:produce",
    "consume": "headworks._cli.consume:consume",
    "sql": "headworks._cli.sql:sql",
    "mirror": "headworks._cli.mirror:mirror",
}


def command_line(only: str | None = None) -> typer.Typer:
    """Return all commands, or the one named `only`, so that the others need not be loaded."""
    app = typer.Typer(
        name="headworks",
        cls=SentenceGroup,
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},  # commands inherit it
    )
    app.callback()(_headworks)
    for name, where in {**_NOUNS, **_VERBS}.items():
        if only is not None and name != only:
            continue
        module, _, attribute = where.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if name in _NOUNS:
            app.add_typer(found, name=name, cls=SentenceGroup)
        else:
            app.command(name)(found)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"headworks {__version__}")
        raise typer.Exit


def _headworks(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="print the version, and exit", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Hold the options of `headworks` itself."""


def run() -> None:
    """Run the command line; the console script's entry point.

    Garbage collection runs rarely: imported modules stay alive, and a collection every 700 objects
    would cost a sixth of the start-up time.
    """
    gc.set_threshold(_COLLECT_AFTER_OBJECTS)
    named = "".join(sys.argv[1:2])
    try:
        _require_text(sys.argv[1:])
        command_line(named if named in _NOUNS or named in _VERBS else None)(prog_name="headworks")
    except HeadworksError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in _OURS:
            raise
        what = f"`headworks {named}` needs {missing}, which is not installed"
        _fail(UsageError(what, fix=f"pip install 'headworks[{_EXTRAS.get(named, 'server')}]'"))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.errno not in _WRONG_PATHS or error.filename is None:
            raise
        what = f"{os.fsdecode(error.filename)}: {error.strerror}"
        _fail(UsageError(what, fix=_WRONG_PATHS[error.errno]))
    except RuntimeError as error:
        if not str(error).startswith(_LOOP):
            raise
        what = f"{str(error).removeprefix(_LOOP)}: {os.strerror(errno.ELOOP)}"
        _fail(UsageError(what, fix=_WRONG_PATHS[errno.ELOOP]))


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse other bytes than UTF-8: names of that kind reach no server, and no output."""
    for one in arguments:
        if not one.isascii() and any("\udc80" <= character <= "\udcff" for character in one):
            raise UsageError(f"the argument {one!r} is not UTF-8", fix="rename it, or its file")


def _fail(error: HeadworksError) -> NoReturn:
    sys.stderr.write(f"error: {error}\n")
    sys.exit(error.exit_code)
