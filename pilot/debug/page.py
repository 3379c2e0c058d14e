"""What a debug page is: a function of what the process holds and of a query, without any web framework in it."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.debug.sources import Connection, Sources
from pilot.lib.text import one_line

Query = Mapping[str, str]
NO_PROXY_ID = "You must provide a proxyID in the query string\n"
# istioctl looks for this text, and then asks the next replica
NOT_CONNECTED = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n"


class Refused(Exception):
    """The request cannot be answered: HTTP status and text for the caller."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class Text(NamedTuple):
    """An answer that is not JSON."""

    text: str


class Later(NamedTuple):
    """An answer that takes long to make, out of values that no longer change: it is made beside the event loop."""

    make: Callable[[], Any]


class Page(NamedTuple):
    """`answer` gives plain data for JSON, `Text` or `Later`, or raises `Refused`. `examples`: queries worth a link.
    `of_proxy`: it must be told a proxyID."""

    path: str
    about: str
    answer: Callable[[Sources, Query], Any]
    examples: tuple[str, ...] = ()
    of_proxy: bool = False


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


def encode(value: Any, query: Query) -> Answer:
    """Returns plain data as JSON, compact, or indented by four where the query has `pretty`."""
    if isinstance(value, Text):
        return Answer(200, "text/plain; charset=utf-8", value.text.encode(errors="backslashreplace"))
    try:
        body = msgspec.json.encode(value)
    except UnicodeEncodeError:
        body = msgspec.json.encode(_as_text(msgspec.to_builtins(value)))
    return Answer(200, "application/json", msgspec.json.format(body, indent=4) if "pretty" in query else body)


def _as_text(value: Any) -> Any:
    """Returns plain data with escapes for what is no text, such as the bytes of a file name that is no UTF-8."""
    if isinstance(value, str):
        return "".join(one_line(c) if 0xD800 <= ord(c) < 0xE000 else c for c in value)
    if isinstance(value, Mapping):
        return {_as_text(key): _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value


def find_connection(sources: Sources, proxy_id: str) -> Connection:
    """Returns the first connection whose id contains `proxy_id`."""
    for connection in sources.fleet.connections():
        if proxy_id in connection.id:
            return connection
    raise Refused(404, NOT_CONNECTED)


def asked_connection(sources: Sources, query: Query) -> Connection:
    """Returns the connection that the query's proxyID names."""
    proxy_id = query.get("proxyID", "")
    if not proxy_id:
        raise Refused(400, NO_PROXY_ID)
    return find_connection(sources, proxy_id)
