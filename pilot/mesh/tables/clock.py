"""The current time, for checks of expiry."""

from __future__ import annotations

from pilot.mesh.tables.database import Mesh

NOW = "now"


def current_time(db: Mesh) -> float | None:
    """Return the time in Unix seconds, or None if it is unknown. It advances every few minutes."""
    return db.clock.get(NOW)
