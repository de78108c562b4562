"""The command that gives a page's answer in a terminal, ready to be pasted.

Rules: every name is quoted for a shell. An address that is not the default is part of the command,
so that the command asks the same servers. A credential never is: commands have their own settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from starlette.requests import Request

from hadoop_loader._storage.filesystem import AnyPath
from headworks._console.sources import Sources
from headworks._settings import SETTINGS

_FOLDER = Path(SETTINGS["data_dir"].default or "")


def headworks(
    sources: Sources, *words: str, names: Sequence[str] = (), at: Iterable[str] = ()
) -> str:
    """Return `headworks WORDS NAMES`, with those address options of `at` that are not defaults."""
    options = [word for one in at for word in _option(sources, one)]
    if any(name.startswith("-") for name in names):
        return shlex.join(["headworks", *words, *options, "--", *names])
    return shlex.join(["headworks", *words, *names, *options])


def gate_command(sources: Sources) -> str:
    """Return the command that checks a file the way the page checks a pasted schema."""
    against = f"registry:{sources.registry.url}"
    words = ("schema", "check", "proposed.avsc", "--against", against)
    # Only with a broker does it name who reads the topic.
    return headworks(sources, *words, "--bootstrap", sources.endpoints.bootstrap)


def curl(request: Request) -> str:
    """Return a `curl` command for the JSON of the page, if no `headworks` command has the same
    answer.
    """
    url = request.url
    path = url.path if url.path.endswith(".json") else f"{url.path}.json"
    words = ["curl -s", *_credentials(request), shlex.quote(str(url.replace(path=path)))]
    return " ".join(words)


def _credentials(request: Request) -> list[str]:
    """Return the `curl` options for the reader's own credentials, if the request had some."""
    scheme = request.headers.get("authorization", "").partition(" ")[0].lower()
    if scheme == "basic":
        return [f"-u {shlex.quote(request.state.visibility.name or '')}"]
    return ['-H "Authorization: Bearer $TOKEN"'] if scheme == "bearer" else []


def _option(sources: Sources, name: str) -> list[str]:
    endpoints = sources.endpoints
    value, default = {
        "bootstrap": (endpoints.bootstrap, SETTINGS["bootstrap"].default),
        "registry": (sources.registry.url, SETTINGS["registry"].default),
        "zookeeper": (endpoints.zookeeper, None),
        "warehouse": (_absolute(endpoints.warehouse), _absolute(_FOLDER / "warehouse")),
        "data-dir": (_data_dir(endpoints.warehouse), _absolute(_FOLDER)),
        "store": (endpoints.audit_store, f"sqlite:///{(_FOLDER / 'audit.db').resolve()}"),
    }[name]
    # The address of a database may hold a password, and a path of this machine is no reader's.
    hidden = name == "store" and not str(value).startswith("sqlite:")
    hidden = hidden or (sources.guarded and name in ("warehouse", "data-dir", "store"))
    return [] if value is None or value == default or hidden else [f"--{name}", value]


def _data_dir(warehouse: AnyPath) -> str | None:
    """Return the folder that holds the warehouse, or None for a remote warehouse."""
    return _absolute(warehouse.parent) if isinstance(warehouse, Path) else None


def _absolute(place: AnyPath) -> str:
    """Return a place that means the same in every folder that a command may run in."""
    return str(place.absolute() if isinstance(place, Path) else place)
