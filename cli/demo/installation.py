"""An installation that is not the demo's own (`--on FILE`): what the demo uses and makes there.

Rules:

- Every setting comes from the file, not from the environment.
- The demo makes its topics, its subjects, two Hive databases, and a folder in the warehouse. If one
  of the topics or subjects exists, it is another's, and the demo refuses to run. Databases and
  folder have names of this run alone.
- The topics are made first: only one demo at a time can make them, so the subjects are its own.
- The demo takes away at the end what it made, however it ended. The audit's topic stays with the
  demo's counts, and so do the subjects of Headworks' own topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from headworks._cli.output import print_status
from headworks._settings import lookup
from headworks.errors import HeadworksError, UsageError


@dataclass(frozen=True, slots=True)
class Installation:
    """The settings of a running installation. The demo starts what is None."""

    bootstrap: str
    registry: str | None = None  # one URL, or several on one store
    warehouse: str | None = None  # folder or URI that holds the demo's folder
    metastore: str | None = None
    spark_master: str | None = None
    run: str = field(default_factory=lambda: uuid4().hex[:8])  # in the names of what it makes

    @classmethod
    def read(cls, file: Path) -> Installation:
        """Return the installation that a settings file names.

        Raises UsageError if it does not name a broker, a registry, and a warehouse.
        """
        path = str(file)

        def stated(name: str) -> str | None:
            found = lookup(name, env={"HEADWORKS_CONFIG": path})
            return found.value if found.source == path else None

        bootstrap, registry, warehouse = map(stated, ("bootstrap", "registry", "warehouse"))
        if not (bootstrap and registry and warehouse):
            raise UsageError(
                f"{file} does not set bootstrap, registry, and warehouse",
                fix="name the installation's servers and warehouse there (docs/settings.md)",
            )
        metastore, master = stated("metastore"), stated("spark_master")
        return cls(bootstrap, registry, warehouse, metastore, master)

    @property
    def tables(self) -> str:
        """The folder in the warehouse that holds the demo's tables and commits."""
        return f"{(self.warehouse or '').rstrip('/')}/headworks-demo-{self.run}"

    @property
    def database(self) -> str:
        """The Hive database of the demo's tables."""
        return "default" if self.registry is None else f"headworks_demo_{self.run}"


@contextmanager
def temporary_subjects(registry: str, subjects: Sequence[str]) -> Iterator[None]:
    """Delete `subjects` from the registry at exit.

    Raises UsageError if one of them exists, UnreachableError if no registry answers.
    """
    from headworks.registry_client import RegistryClient

    client = RegistryClient(registry)
    there = sorted(set(client.ask("GET", "/subjects?deleted=true")) & set(subjects))
    if there:
        raise UsageError(
            f"the registry at {client.url} already has the demo's {', '.join(there)}",
            fix="use another registry, or, if they are left from an earlier demo, delete them "
            "there: DELETE /subjects/NAME, then DELETE /subjects/NAME?permanent=true",
        )
    try:
        yield
    finally:
        for subject in subjects:
            try:
                if client.latest(subject) is not None:
                    client.ask("DELETE", f"/subjects/{subject}")
                    client.ask("DELETE", f"/subjects/{subject}?permanent=true")
            except HeadworksError as error:
                print_status(f"{client.url} did not delete the demo's {subject}: {error}")


@contextmanager
def temporary_folder(there: Installation) -> Iterator[None]:
    """Remove the demo's folder in the warehouse at exit."""
    from hadoop_loader._storage.filesystem import parse_path, remove_tree

    folder = parse_path(there.tables)
    try:
        yield
    finally:
        remove_tree(folder)
