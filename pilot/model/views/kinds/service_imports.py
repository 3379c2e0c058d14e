"""Every ServiceImport of every cluster."""

from __future__ import annotations

from pilot.model.config.service_export import ServiceImport
from pilot.model.views.kinds.view import RegistryView

service_imports = RegistryView[ServiceImport]("ServiceImport", lambda db: db.service_imports)
