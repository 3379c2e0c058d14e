"""Every ReferenceGrant."""

from __future__ import annotations

from pilot.model.config.gateway_api.reference_grant import ReferenceGrant
from pilot.model.views.kinds.view import KindView

reference_grants = KindView[ReferenceGrant]("ReferenceGrant", lambda db: db.reference_grants)
