"""Listeners that may not stand beside an older one of the same Gateway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PROTOCOL_CONFLICT, HOSTNAME_CONFLICT = "ProtocolConflict", "HostnameConflict"
_BY_HOST = ("HTTP", "HTTPS", "TLS")
_BY_PORT = ("TCP", "UDP")


class ListenerIdentity(NamedTuple):
    """What listeners are told apart by. Of no hostname is every host."""

    port: int
    protocol: str
    hostname: str


def find_conflicts(places: Iterable[ListenerIdentity]) -> tuple[str, ...]:
    """Returns for each listener, in order of precedence, the reason why it gives way, "" where it does not. What gives way is in nobody's way."""
    stand: list[ListenerIdentity] = []
    reasons = []
    for place in places:
        reason = next((found for older in stand if (found := _conflict(place, older))), "")
        reasons.append(reason)
        if not reason:
            stand.append(place)
    return tuple(reasons)


def _conflict(new: ListenerIdentity, older: ListenerIdentity) -> str:
    if new.port != older.port:
        return ""
    if new.protocol in _BY_HOST and older.protocol in _BY_HOST:
        if (new.hostname or "*") != (older.hostname or "*"):
            return ""
        return HOSTNAME_CONFLICT if new.protocol == older.protocol else PROTOCOL_CONFLICT
    if new.protocol == older.protocol:
        return PROTOCOL_CONFLICT if new.protocol in _BY_PORT else HOSTNAME_CONFLICT
    known = (*_BY_HOST, *_BY_PORT)
    return PROTOCOL_CONFLICT if new.protocol in known and older.protocol in known else ""
