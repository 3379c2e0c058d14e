"""Every RequestAuthentication."""

from __future__ import annotations

from pilot.model.config.request_authentication import RequestAuthentication
from pilot.model.views.kinds.view import KindView

request_authentications = KindView[RequestAuthentication](
    "RequestAuthentication", lambda db: db.request_authentications
)
