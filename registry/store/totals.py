"""The numbers of live subjects, versions, and schemas in the store."""

from __future__ import annotations

from sqlalchemy import func, select

from headworks._registry.store.database import RegistryStore
from headworks._registry.store.tables import versions


def totals(database: RegistryStore) -> dict[str, int]:
    """Return the number of subjects, of their versions, and of distinct schemas among these."""
    live = versions.c.deleted.is_(False)
    subjects = select(versions.c.context, versions.c.subject).where(live).distinct().subquery()
    schemas = select(versions.c.context, versions.c.schema_id).where(live).distinct().subquery()
    counted = {
        "subjects": select(func.count()).select_from(subjects),
        "versions": select(func.count()).select_from(versions).where(live),
        "schemas": select(func.count()).select_from(schemas),
    }
    with database.read() as connection:
        return {name: connection.scalar(query) or 0 for name, query in counted.items()}
