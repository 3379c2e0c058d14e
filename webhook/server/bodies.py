"""Reads request bodies within a budget of memory, of which each address gets a share."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

from aiohttp import web

LARGEST_POD_REVIEW = 3 << 20
"""Maximum size of the review of a Pod in bytes, the size that API servers accept for a request."""
LARGEST_CONFIG_REVIEW = 6 << 20
"""Maximum size of the review of a configuration object in bytes. It contains the old and the new object."""
BODY_BUDGET = 32 << 20
"""Bytes of all bodies that are read or reviewed. One address may use half of this, which suffices for 500 ordinary
reviews at a time. API servers send at most 200 by default."""
OVERHEAD = 16 << 10
"""Bytes that each request counts in addition to its body."""
READ_TIMEOUT = 10.0
"""Maximum number of seconds until a body has arrived, the default timeout of API servers for a review."""


class BodyBudget:
    """Bytes that requests occupy, in total and by address.

    An address may use as much as is left for all others. Therefore, no address can use everything.
    """

    def __init__(self, total: int = BODY_BUDGET) -> None:
        self._free = total
        self._used: Counter[str] = Counter()

    @contextlib.contextmanager
    def reserve(self, address: str) -> Iterator[Reservation]:
        """Reserve the overhead of a request. The status is 429 if the address has used its share."""
        reservation = Reservation(self, address)
        try:
            reservation.grow(OVERHEAD)
            yield reservation
        finally:
            self._change(address, -reservation.size)

    def _change(self, address: str, size: int) -> None:
        if size > 0 and self._used[address] + size > self._free - size:
            raise web.HTTPTooManyRequests(
                text=f"too many reviews: those from {address} take {self._used[address]} bytes\n",
                headers={"Retry-After": "1"},
            )
        self._used[address] += size
        self._free -= size
        if not self._used[address]:
            del self._used[address]


class Reservation:
    """Bytes that a request has reserved."""

    def __init__(self, budget: BodyBudget, address: str) -> None:
        self._budget, self._address = budget, address
        self.size = 0

    def grow(self, size: int) -> None:
        """Reserve more bytes. The status is 429 if the address has used its share."""
        self._budget._change(self._address, size)
        self.size += size


async def read_body(request: web.Request, largest: int, reservation: Reservation) -> bytes:
    """Return the request body.

    The status is 400 if the body is empty or too large, 408 if it does not arrive in time, 415 if its type is not JSON,
    and 429 if the budget is used.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            while (request.content_length or 0) <= largest and len(body) <= largest:
                part = await request.content.readany()
                if not part:
                    break
                reservation.grow(len(part))
                body += part
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"no complete body within {READ_TIMEOUT:g} seconds\n") from None
    except (web.RequestPayloadError, OSError) as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error
    if max(request.content_length or 0, len(body)) > largest:
        raise web.HTTPBadRequest(text=f"limit is {largest} bytes: http: request body too large\n")
    if not body:
        raise web.HTTPBadRequest(text="no body found\n")
    if request.headers.get("Content-Type") != "application/json":
        raise web.HTTPUnsupportedMediaType(text="invalid Content-Type, want `application/json`\n")
    return bytes(body)
