"""Every ServiceImport of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.service_export import ServiceImport
from pilot.mesh.kinds.view import RegistryView

service_imports = RegistryView[ServiceImport]("ServiceImport", lambda db: db.service_imports)
