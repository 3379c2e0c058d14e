"""Every ServiceExport of every cluster."""

from __future__ import annotations

from pilot.model.config.service_export import ServiceExport
from pilot.model.views.kinds.view import RegistryView

service_exports = RegistryView[ServiceExport]("ServiceExport", lambda db: db.service_exports)
