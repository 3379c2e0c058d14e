"""Caches encoded responses for connections that receive the same response at almost the same time."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from pilot.xds.session.session import Response, Session


class EncodedMessage(NamedTuple):
    nonce: str
    data: bytes


class MessageCache:
    """The most recent encoded responses, up to `limit` bytes.

    Copying half a megabyte for each of 500 proxies takes as long as writing it. Nonces are compared only within a
    stream, so streams with the same bytes may share a nonce. Within a stream, a nonce is never used twice. A proxy
    receives an equal response with an equal version only on request, and the message is then encoded again.
    """

    def __init__(self, limit: int = 32 * 1024 * 1024) -> None:
        self._limit, self._size = limit, 0
        self._messages: OrderedDict[Hashable, EncodedMessage] = OrderedDict()

    def find(self, session: Session, response: Response, version: str) -> EncodedMessage | None:
        """Return the cached message of an equal response, or None if there is none or it was already sent on this
        stream."""
        key = _key(session, response, version)
        message = self._messages.get(key)
        if message is None or message.nonce == session.subscriptions[response.type_url].nonce_sent:
            return None
        self._messages.move_to_end(key)
        return message

    def add(self, session: Session, response: Response, version: str, message: EncodedMessage) -> None:
        """Store the message of a response."""
        if len(message.data) > self._limit:
            return
        key = _key(session, response, version)
        self._remove(key)
        self._messages[key] = message
        self._size += len(message.data)
        while self._size > self._limit:
            self._remove(next(iter(self._messages)))

    def clear(self) -> None:
        self._messages.clear()
        self._size = 0

    def _remove(self, key: Hashable) -> None:
        if (old := self._messages.pop(key, None)) is not None:
            self._size -= len(old.data)


def _key(session: Session, response: Response, version: str) -> Hashable:
    return type(session), version, response.type_url, response.payloads, response.removed


def random_uuid() -> str:
    """Return a version 4 UUID from a fast random number generator. Nonces need not be unpredictable."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
