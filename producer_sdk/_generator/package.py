"""The generated package: one module per namespace, written or compared with the existing files.

Rules: only files with the generator's mark are ever replaced or removed. Any other file is the
user's, and a conflict with it is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headworks.errors import UsageError
from headworks.schema import governance_of, subject_of
from headworks.schema._canonical import fingerprint
from producer_sdk._generator.module import MARKER, ModuleWriter
from producer_sdk._generator.names import module_name
from producer_sdk._generator.schema_files import namespace_of, read_type_catalog

_INIT = f'{MARKER}\n"""Typed events: one module per namespace of the schemas."""\n'


def generate(paths: Sequence[Path]) -> dict[str, str]:
    """Return the package of the schemas at `paths`: text by file name."""
    catalog = read_type_catalog(paths)
    files = {"__init__.py": _INIT}
    origin: dict[str, str] = {}
    for namespace in sorted({namespace_of(name) for name in catalog.types}):
        writer = ModuleWriter(catalog, namespace)
        if writer.is_empty:
            continue
        name = f"{module_name(namespace)}.py"
        if name in files:
            raise UsageError(
                f"namespaces {origin[name]!r} and {namespace!r} would both be the module {name}",
                fix="rename one of them",
            )
        files[name], origin[name] = writer.text(), namespace
    return files


def events(paths: Sequence[Path]) -> list[tuple[str, str, str]]:
    """Return (subject, schema text, fingerprint) of each event of the schemas at `paths`."""
    return sorted(
        (subject_of(governance_of(source.root).topic), source.text, fingerprint(source.root))
        for source in read_type_catalog(paths).events()
    )


def stale(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Return the files in `folder` that are missing, differ, or are left over, sorted."""
    wrong = [folder / name for name, text in files.items() if _read(folder / name) != text]
    return sorted([*wrong, *_left_over(files, folder)])


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Make `folder` hold exactly these generated files; return those that changed.

    Raises UsageError, before anything is written, if a file of the user is in the way.
    """
    changed = stale(files, folder)
    for path in changed:
        if path.exists() and not (_read(path) or MARKER).startswith(MARKER):
            raise UsageError(
                f"{path} was not generated, and would be overwritten",
                fix="generate into a folder of its own, or move the file away",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in changed:
            if path.name in files:
                path.write_text(files[path.name], encoding="utf-8")
            else:
                path.unlink()
    except OSError as error:
        raise UsageError(
            f"the folder {folder} cannot be written: {error.strerror}",
            fix="name another with --out",
        ) from None
    return changed


def replace(path: Path, text: str) -> list[Path]:
    """Make a file of the package hold `text`; return [path] if that changed it."""
    if _read(path) == text:
        return []
    path.write_text(text, encoding="utf-8")
    return [path]


def _left_over(files: Mapping[str, str], folder: Path) -> list[Path]:
    return [
        path
        for path in folder.glob("*.py")
        if path.name not in files and (_read(path) or "").startswith(MARKER)
    ]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
