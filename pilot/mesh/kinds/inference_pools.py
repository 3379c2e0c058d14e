"""Every InferencePool."""

from __future__ import annotations

from pilot.config.gateway_api.inference_pool import InferencePool
from pilot.mesh.kinds.view import KindView

inference_pools = KindView[InferencePool]("InferencePool", lambda db: db.inference_pools)
