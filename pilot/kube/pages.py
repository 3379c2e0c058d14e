"""Reads lists in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from pilot.kube.api_client import LARGEST_RESPONSE
from pilot.kube.api_errors import ResponseTooLarge
from pilot.kube.deep_json import decode_any_depth
from pilot.kube.list_watch import ListPage, read_page

PAGE_SIZE = 500
"""Maximum number of objects in a page."""
NAMES_PAGE_SIZE = 2000
"""Maximum number of objects in a page with their metadata only."""
LARGEST_PAGE = 8 << 20
"""Maximum size in bytes of a page of several objects. A page of `PAGE_SIZE` ordinary objects is smaller. Decoding a
larger page would block the event loop."""
FetchPage = Callable[[dict[str, str], int], Awaitable[bytes]]
"""Returns the body of a list request. The arguments are query parameters, and the maximum size of the body in bytes.

Raises ResponseTooLarge if the body is larger.
"""


async def read_pages(fetch: FetchPage, most: int = PAGE_SIZE) -> AsyncIterator[ListPage]:
    """Yield the pages of a list. If a page is too large, it is requested again with half as many objects. After each
    page, the number of objects to request doubles, up to `most`."""
    size, token = most, ""
    while True:
        query = {"limit": str(size), **({"continue": token} if token else {})}
        try:
            body = await fetch(query, LARGEST_PAGE if size > 1 else LARGEST_RESPONSE)
        except ResponseTooLarge:
            if size == 1:
                raise
            size //= 2
            continue
        page = await decode_any_depth(read_page, body)
        yield page
        token = page.metadata.continue_
        if not token:
            return
        size = min(2 * size, most)
