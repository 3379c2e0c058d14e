"""Every PeerAuthentication."""

from __future__ import annotations

from pilot.model.config.peer_authentication import PeerAuthentication
from pilot.model.views.kinds.view import KindView

peer_authentications = KindView[PeerAuthentication]("PeerAuthentication", lambda db: db.peer_authentications)
