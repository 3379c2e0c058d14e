"""Every ServiceEntry."""
from __future__ import annotations

from pilot.model.config.service_entry import ServiceEntry
from pilot.model.views.kinds.view import KindView

service_entries = KindView[ServiceEntry]("ServiceEntry", lambda db: db.service_entries)
