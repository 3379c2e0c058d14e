"""What a debug page is: a function of what the process holds and of a query, without any web framework in it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.debug.plain_json import parts
from pilot.debug.slices import without_collections
from pilot.debug.sources import ConnectedProxy, Sources

Query = Mapping[str, str]
TEXT = "text/plain; charset=utf-8"
_NO_SNIFF = {"X-Content-Type-Options": "nosniff"}
NO_PROXY_ID = "You must provide a proxyID in the query string\n"
# istioctl looks for this text, and then asks the next replica
NOT_CONNECTED = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n"


class Refused(Exception):
    """The request cannot be answered: HTTP status and text for the caller."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class TextAnswer(NamedTuple):
    """An answer that is not JSON."""

    text: str


class Indented(NamedTuple):
    """Plain data that is indented whether the query asks for it or not."""

    value: Any


class FileAnswer(NamedTuple):
    """An answer of bytes that browsers keep as a file of that name."""

    name: str
    body: bytes


class Html(NamedTuple):
    """An answer that is a page for people."""

    text: str


class Later(NamedTuple):
    """An answer that takes long to make, out of values that no longer change: it is made beside the event loop."""

    make: Callable[[], Any]


class Page(NamedTuple):
    """`answer` gives plain data for JSON, one of the answers above, or what is to be awaited for one of these, or raises `Refused`. `examples`:
    queries worth a link. `of_proxy`: it must be told a proxyID. `listed`: it is in /debug/list."""

    path: str
    about: str
    answer: Callable[[Sources, Query], Any]
    examples: tuple[str, ...] = ()
    of_proxy: bool = False
    listed: bool = True


class Answer(NamedTuple):
    """What goes out over HTTP, in parts. `headers`: beside the content type."""

    status: int
    content_type: str
    parts: Sequence[bytes]
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        """Returns all parts as one."""
        return b"".join(self.parts)


async def answer(page: Page, sources: Sources, query: Query) -> Answer:
    """Returns what a page says; what takes long is made in slices, or beside the event loop. A page that refuses to answer says so."""
    try:
        with without_collections():
            value = page.answer(sources, query)
            if inspect.isawaitable(value):
                value = await value
            return await asyncio.to_thread(lambda: encode(value.make() if isinstance(value, Later) else value, query))
    except Refused as refused:
        return Answer(refused.status, TEXT, (refused.text.encode(errors="backslashreplace"),))


def encode(value: Any, query: Query) -> Answer:
    """Returns plain data as JSON, compact, or indented by four where the query has `pretty`."""
    if isinstance(value, TextAnswer):
        return Answer(200, TEXT, (value.text.encode(errors="backslashreplace"),))
    if isinstance(value, Html):
        return Answer(200, "text/html; charset=utf-8", (value.text.encode(errors="backslashreplace"),))
    if isinstance(value, FileAnswer):
        return Answer(
            200,
            "application/octet-stream",
            (value.body,),
            {"Content-Disposition": f'attachment; filename="{value.name}"', **_NO_SNIFF},
        )
    if isinstance(value, Indented):
        return Answer(200, "application/json", tuple(parts(value.value, pretty=True)))
    return Answer(200, "application/json", tuple(parts(value, pretty="pretty" in query)))


def find_connection(sources: Sources, proxy_id: str) -> ConnectedProxy:
    """Returns the first connection whose id contains `proxy_id`."""
    for connection in sources.fleet.connections():
        if proxy_id in connection.id:
            return connection
    raise Refused(404, NOT_CONNECTED)


def asked_connection(sources: Sources, query: Query) -> ConnectedProxy:
    """Returns the connection that the query's proxyID names."""
    proxy_id = query.get("proxyID", "")
    if not proxy_id:
        raise Refused(400, NO_PROXY_ID)
    return find_connection(sources, proxy_id)
