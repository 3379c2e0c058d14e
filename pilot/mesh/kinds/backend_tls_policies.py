"""Every BackendTLSPolicy."""

from __future__ import annotations

from pilot.config.gateway_api.backend_policy import BackendTLSPolicy
from pilot.mesh.kinds.view import KindView

backend_tls_policies = KindView[BackendTLSPolicy]("BackendTLSPolicy", lambda db: db.backend_tls_policies)
