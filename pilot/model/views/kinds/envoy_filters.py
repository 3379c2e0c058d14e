"""Every EnvoyFilter."""

from __future__ import annotations

from pilot.model.config.envoy_filter import EnvoyFilter
from pilot.model.views.kinds.view import KindView

envoy_filters = KindView[EnvoyFilter]("EnvoyFilter", lambda db: db.envoy_filters)
