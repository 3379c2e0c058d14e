"""The debug pages of a running istiod, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=60, connect=10)
LARGEST_PAGE = 256 << 20
"""Maximum size of a page in bytes. The configuration of one proxy has a few MB."""


class ReferenceFault(Exception):
    """The reference cannot be read. The message is one sentence for the user."""


class DebugClosedError(ReferenceFault):
    """The reference rejects requests for debug pages."""


class PageError(ReferenceFault):
    """The reference failed to build a page."""


class ReferencePages:
    """Client for the debug pages at an address, such as http://127.0.0.1:15014."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def get(self, page: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the body of a page, or b"" if the page or the proxy does not exist.

        Raise ReferenceFault if the reference is unreachable, PageError if it fails, or DebugClosedError if it rejects
        the request.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        url = f"{self.address}/debug/{page}"
        try:
            async with self._session.get(url, params=query, allow_redirects=False) as response:
                body = await _read(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ReferenceFault(f"cannot read {url}: {error or type(error).__name__}") from error
        if response.status in (401, 403):
            raise DebugClosedError(f"{url} is closed: the reference returned {response.status}")
        if response.status == 404:
            return b""
        if response.status != 200:
            raise PageError(f"{url} returned {response.status} {response.reason}")
        return body

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for data in response.content.iter_any():
        content += data
        if len(content) > LARGEST_PAGE:
            raise ReferenceFault(f"{response.url} is larger than {LARGEST_PAGE} bytes")
    return bytes(content)
