"""Every ServiceExport of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.service_export import ServiceExport
from pilot.mesh.kinds.view import RegistryView

service_exports = RegistryView[ServiceExport]("ServiceExport", lambda db: db.service_exports)
