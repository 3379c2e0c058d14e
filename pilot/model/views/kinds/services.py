"""Every Kubernetes Service of every cluster."""

from __future__ import annotations

from pilot.model.config.service import Service
from pilot.model.views.kinds.view import RegistryView

services = RegistryView[Service]("Service", lambda db: db.services)
