"""Every Namespace of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.namespace import Namespace
from pilot.mesh.kinds.view import RegistryView

namespaces = RegistryView[Namespace]("Namespace", lambda db: db.namespaces)
