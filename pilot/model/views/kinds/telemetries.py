"""Every Telemetry."""

from __future__ import annotations

from pilot.model.config.telemetry import Telemetry
from pilot.model.views.kinds.view import KindView

telemetries = KindView[Telemetry]("Telemetry", lambda db: db.telemetries)
