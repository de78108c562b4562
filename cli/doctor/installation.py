"""The package: Python, the extras, the compiled parts, Java, and the settings file."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence

from headworks import __version__
from headworks._cli.doctor.diagnosis import Diagnosis, note, ok, problem
from headworks._native import COMPILED
from headworks._server.java import find_java
from headworks._settings import SETTINGS, lookup
from headworks.errors import UsageError

_NEWEST_PYTHON = (3, 14)
_EXTRAS = {
    "server": "broker, registry, console, audit, and mirror",
    "hadoop": "headworks load and headworks sql",
    "zookeeper": "groups and clusters over ZooKeeper",
    "postgresql": "registry and audit on PostgreSQL",
    "s3": "a warehouse in S3",
    "demo": "headworks demo",
}
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?([^;]*)(?:;.*extra == ['\"]([\w-]+)['\"].*)?$")
_JAVA_VERSION = re.compile(r'version "([^"]+)"')


def installation() -> Iterator[Diagnosis]:
    """Check everything that `pip install` brings, and Java."""
    yield _python()
    yield _compiled()
    requirements = importlib.metadata.requires("headworks") or []
    for extra, purpose in _EXTRAS.items():
        yield extra_diagnosis(extra, purpose, requirements, _installed)
    yield _java(needed=not missing_packages("hadoop", requirements, _installed))


def missing_packages(
    extra: str, requirements: Sequence[str], installed: Callable[[str], str | None]
) -> list[str]:
    """Return the packages of an extra that are not installed, as `requirements` names them."""
    matches = filter(None, map(_REQUIREMENT.match, requirements))
    return [found[1] for found in matches if found[3] == extra and installed(found[1]) is None]


def extra_diagnosis(
    extra: str,
    purpose: str,
    requirements: Sequence[str],
    installed: Callable[[str], str | None],
) -> Diagnosis:
    """Return whether an extra is installed, in part, or not at all."""
    missing = missing_packages(extra, requirements, installed)
    subject, fix = f"extra {extra}", f"pip install 'headworks[{extra}]'"
    if not missing:
        return ok(subject, f"installed: {purpose}")
    named = [found for found in map(_REQUIREMENT.match, requirements) if found]
    if len(missing) < sum(found[3] == extra for found in named) and extra == "server":
        return problem(subject, f"installed in part, without {', '.join(missing)}", fix)
    return note(subject, f"not installed; {purpose} need it", fix)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python() -> Diagnosis:
    text = f"{__version__} on Python {platform.python_version()}, {platform.system()}"
    if sys.version_info[:2] > _NEWEST_PYTHON:
        newest = ".".join(map(str, _NEWEST_PYTHON))
        return note("headworks", f"{text}, which is untested", f"use Python 3.11 to {newest}")
    return ok("headworks", f"{text} {platform.machine()}")


def _compiled() -> Diagnosis:
    if COMPILED:
        return ok("compiled parts", "the codec and the audit counters are compiled")
    return note(
        "compiled parts",
        "missing: Python encodes and decodes, with the same results, but more slowly",
        "install gcc and Python's headers (apt install gcc python3-dev), then install headworks"
        " again",
    )


def _java(*, needed: bool) -> Diagnosis:
    try:
        java = find_java()
    except UsageError as error:
        state = problem if needed else note
        return state("java", error.message, error.fix or "install Java 17")
    version = _JAVA_VERSION.search(java.version_text)
    return ok("java", f"{version[1] if version else 'unknown version'}, {java.command}")


def settings_file() -> Diagnosis:
    """Return whether the settings can be read."""
    try:
        given = [name for name in SETTINGS if "default" not in lookup(name).source]
    except UsageError as error:
        return problem("settings", error.message, error.fix or "correct the file")
    return ok("settings", f"given: {', '.join(given) or 'none'} (see `headworks config show`)")
