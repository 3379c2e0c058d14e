"""Every Node of every cluster."""

from __future__ import annotations

from pilot.model.config.node import Node
from pilot.model.views.kinds.view import RegistryView

nodes = RegistryView[Node]("Node", lambda db: db.nodes)
