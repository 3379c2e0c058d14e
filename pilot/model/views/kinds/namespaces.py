"""Every Namespace of every cluster."""

from __future__ import annotations

from pilot.model.config.namespace import Namespace
from pilot.model.views.kinds.view import RegistryView

namespaces = RegistryView[Namespace]("Namespace", lambda db: db.namespaces)
