"""gateway.networking.k8s.io ListenerSet. https://gateway-api.sigs.k8s.io/geps/gep-1713/"""

from __future__ import annotations

from pilot.config.base import Lenient
from pilot.config.gateway_api.gateway import Listener
from pilot.config.gateway_api.reference import ParentReference


class ListenerSet(Lenient, frozen=True):
    """Additional listeners of a Gateway that may have a different owner."""

    parent_ref: ParentReference = ParentReference()
    listeners: tuple[Listener, ...] = ()
