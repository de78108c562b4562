"""`headworks`: every command by noun and verb, and the edge where errors become exit codes.

Exit 0 fine, 1 findings, 2 usage, 3 cannot reach a service (headworks/errors.py), 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys

import typer

from headworks.errors import HeadworksError

__all__ = ["app", "run"]

app = typer.Typer(
    name="headworks",
    help="A schema-governed event pipeline: broker, registry, gate, SDKs, Hadoop loader, audit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_NOUNS = {
    "schema": "cli.schema:schema_app",
    "broker": "cli.broker:broker_app",
    "log": "cli.log:log_app",
    "registry": "cli.registry:registry_app",
    "console": "cli.console:console_app",
    "topic": "cli.topic:topic_app",
    "group": "cli.group:group_app",
    "load": "cli.load:load_app",
    "audit": "cli.audit:audit_app",
    "user": "cli.user:user_app",
    "config": "cli.config:config_app",
}
_VERBS = {
    "gen": "cli.gen:gen",
    "produce": "cli.produce:produce",
    "consume": "cli.consume:consume",
    "sql": "cli.sql:sql",
    "mirror": "cli.mirror:mirror",
    "up": "cli.up:up",
    "demo": "cli.demo.command:demo",
}
for _name, _where in {**_NOUNS, **_VERBS}.items():
    _module, _, _attribute = _where.partition(":")
    _found = getattr(importlib.import_module(_module), _attribute)
    if _name in _NOUNS:
        app.add_typer(_found, name=_name)
    else:
        app.command(_name)(_found)


def run() -> None:
    """Run the command line; the console script's entry point."""
    try:
        app(prog_name="headworks")
    except HeadworksError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
