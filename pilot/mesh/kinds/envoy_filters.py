"""Every EnvoyFilter."""

from __future__ import annotations

from pilot.config.networking.envoy_filter import EnvoyFilter
from pilot.mesh.kinds.view import KindView

envoy_filters = KindView[EnvoyFilter]("EnvoyFilter", lambda db: db.envoy_filters)
