"""Every RequestAuthentication."""

from __future__ import annotations

from pilot.config.security.request_authentication import RequestAuthentication
from pilot.mesh.kinds.view import KindView

request_authentications = KindView[RequestAuthentication](
    "RequestAuthentication", lambda db: db.request_authentications
)
