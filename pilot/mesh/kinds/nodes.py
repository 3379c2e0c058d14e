"""Every Node of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.node import Node
from pilot.mesh.kinds.view import RegistryView

nodes = RegistryView[Node]("Node", lambda db: db.nodes)
