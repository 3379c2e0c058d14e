"""Every Kubernetes Service of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.service import Service
from pilot.mesh.kinds.view import RegistryView

services = RegistryView[Service]("Service", lambda db: db.services)
