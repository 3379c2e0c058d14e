"""Every EndpointSlice of every cluster."""

from __future__ import annotations

from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.mesh.kinds.view import RegistryView

endpoint_slices = RegistryView[EndpointSlice]("EndpointSlice", lambda db: db.endpoint_slices)
