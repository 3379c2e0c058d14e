"""Every ListenerSet."""

from __future__ import annotations

from pilot.model.config.gateway_api.listener_set import ListenerSet
from pilot.model.views.kinds.view import KindView

listener_sets = KindView[ListenerSet]("ListenerSet", lambda db: db.listener_sets)
