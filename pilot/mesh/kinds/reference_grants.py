"""Every ReferenceGrant."""

from __future__ import annotations

from pilot.config.gateway_api.reference_grant import ReferenceGrant
from pilot.mesh.kinds.view import KindView

reference_grants = KindView[ReferenceGrant]("ReferenceGrant", lambda db: db.reference_grants)
