"""Reads request bodies within a memory budget. Each address gets a share of the budget."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

from aiohttp import web

from pilot.lib.text import cut

LARGEST_POD_REVIEW = 3 << 20
"""Maximum size in bytes of the admission review of a Pod. This is the maximum size of a request to an API server."""
LARGEST_CONFIG_REVIEW = 6 << 20
"""Maximum size in bytes of the admission review of a configuration object. It contains the old and the new object."""
BODY_BUDGET = 32 << 20
"""Maximum total size in bytes of all request bodies that are being read or reviewed. One address may use half of this,
which suffices for 500 ordinary admission reviews at a time. API servers send at most 200 by default."""
OVERHEAD = 16 << 10
"""Number of bytes that each request takes from the budget in addition to the size of its body."""
READ_TIMEOUT = 10.0
"""Maximum number of seconds until a request body has arrived. This is also how long API servers wait for an admission
review by default."""


class BodyBudget:
    """The bytes that requests occupy, in total and for each address.

    An address may use at most as many bytes as remain free. Therefore, no address can use everything.
    """

    def __init__(self, total: int = BODY_BUDGET) -> None:
        self._free = total
        self._used: Counter[str] = Counter()

    @contextlib.contextmanager
    def reserve(self, address: str) -> Iterator[Reservation]:
        """Reserve the overhead of a request. Raise HTTPTooManyRequests if the address has used up its share."""
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
        """Reserve more bytes. Raise HTTPTooManyRequests if the address has used up its share."""
        self._budget._change(self._address, size)
        self.size += size


async def read_body(request: web.Request, largest: int, reservation: Reservation) -> bytes:
    """Return the request body.

    Raise an HTTP error with status 400 if the body is empty or too large, 408 if it does not arrive in time, 415 if its
    type is not JSON or it is compressed, and 429 if the budget is used up.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        message = f"Content-Encoding {cut(encoding, 40)} is not supported: send the body without compression\n"
        raise web.HTTPUnsupportedMediaType(text=message)
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
