"""Every AuthorizationPolicy."""

from __future__ import annotations

from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.mesh.kinds.view import KindView

authorization_policies = KindView[AuthorizationPolicy]("AuthorizationPolicy", lambda db: db.authorization_policies)
