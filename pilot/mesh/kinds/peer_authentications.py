"""Every PeerAuthentication."""

from __future__ import annotations

from pilot.config.security.peer_authentication import PeerAuthentication
from pilot.mesh.kinds.view import KindView

peer_authentications = KindView[PeerAuthentication]("PeerAuthentication", lambda db: db.peer_authentications)
