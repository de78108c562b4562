"""The report of the `salvage` commands of broker, registry, and audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headworks._cli.output import number_of, print_status

if TYPE_CHECKING:
    from headworks._server.checked_sqlite.salvage import SalvagedRows

_MAX_LINES = 50


def print_salvaged(found: SalvagedRows) -> None:
    """Print what was damaged, what was kept, and where the damaged file is."""
    for line in found.damage[:_MAX_LINES]:
        print_status(f"damaged: {line}")
    if len(found.damage) > _MAX_LINES:
        print_status(f"damaged: {len(found.damage) - _MAX_LINES} more")
    for table, rows in sorted(found.rows.items()):
        print_status(f"kept {number_of(rows, 'row')} of {table}")
    print_status(f"the damaged store is now {found.moved_to}")
