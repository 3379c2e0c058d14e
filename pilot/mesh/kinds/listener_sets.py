"""Every ListenerSet."""

from __future__ import annotations

from pilot.config.gateway_api.listener_set import ListenerSet
from pilot.mesh.kinds.view import KindView

listener_sets = KindView[ListenerSet]("ListenerSet", lambda db: db.listener_sets)
