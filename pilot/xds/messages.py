"""Responses are encoded once for all connections that are sent the same within a moment."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from pilot.xds.session import Response, Session


class EncodedMessage(NamedTuple):
    nonce: str
    data: bytes


class Messages:
    """The last encoded responses, up to `limit` bytes of them.

    Copying half a megabyte for each of 500 proxies costs as much as writing it. A nonce is compared on its own stream alone, so
    streams that are sent the same bytes may have the same one; on one stream it never comes twice, since a proxy is sent an equal
    answer under an equal version only when it asks for it, and then the message is made anew.
    """

    def __init__(self, limit: int = 32 * 1024 * 1024) -> None:
        self._limit, self._held = limit, 0
        self._messages: OrderedDict[Hashable, EncodedMessage] = OrderedDict()

    def find(self, session: Session, answer: Response, version: str) -> EncodedMessage | None:
        """Returns the message of an equal answer, unless this stream has had it."""
        key = _key(session, answer, version)
        message = self._messages.get(key)
        if message is None or message.nonce == session.subscriptions[answer.type_url].nonce_sent:
            return None
        self._messages.move_to_end(key)
        return message

    def keep(self, session: Session, answer: Response, version: str, message: EncodedMessage) -> None:
        """Keeps the message for others who are to be sent the same."""
        if len(message.data) > self._limit:
            return
        key = _key(session, answer, version)
        self._forget(key)
        self._messages[key] = message
        self._held += len(message.data)
        while self._held > self._limit:
            self._forget(next(iter(self._messages)))

    def clear(self) -> None:
        self._messages.clear()
        self._held = 0

    def _forget(self, key: Hashable) -> None:
        if (old := self._messages.pop(key, None)) is not None:
            self._held -= len(old.data)


def _key(session: Session, answer: Response, version: str) -> Hashable:
    return type(session), version, answer.type_url, answer.payloads, answer.removed


def random_uuid() -> str:
    """Returns a UUID of version 4, from a generator that is quick; nobody gains anything by guessing a nonce."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
