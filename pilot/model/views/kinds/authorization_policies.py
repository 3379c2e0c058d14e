"""Every AuthorizationPolicy."""

from __future__ import annotations

from pilot.model.config.authorization_policy import AuthorizationPolicy
from pilot.model.views.kinds.view import KindView

authorization_policies = KindView[AuthorizationPolicy]("AuthorizationPolicy", lambda db: db.authorization_policies)
