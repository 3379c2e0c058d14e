"""Every Telemetry."""

from __future__ import annotations

from pilot.config.telemetry import Telemetry
from pilot.mesh.kinds.view import KindView

telemetries = KindView[Telemetry]("Telemetry", lambda db: db.telemetries)
