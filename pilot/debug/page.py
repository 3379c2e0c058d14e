"""Debug pages, as functions of the process state and a query. They do not depend on a web framework."""

from __future__ import annotations

import asyncio
import inspect
import urllib.parse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.config.kinds.kubernetes import POD
from pilot.config.object import RegistryKey
from pilot.debug.plain_json import parts
from pilot.debug.slices import without_collections
from pilot.debug.sources import ConnectedProxy, Sources
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import refs_by_hostname, service

Query = Mapping[str, str]
TEXT = "text/plain; charset=utf-8"
_NO_SNIFF = {"X-Content-Type-Options": "nosniff"}
NO_PROXY_ID = "You must provide a proxyID in the query string\n"
_CANDIDATES = 20
"""Maximum number of proxies that the message about an ambiguous proxyID lists."""
_SERVICE_PREFIXES = ("svc/", "service/")
PROXY_HEADER = "X-Proxy-ID"
"""Response header with the ID of the proxy that a page is about."""
# istioctl tries the next replica if it receives this text
NOT_CONNECTED = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n"


class Refused(Exception):
    """A request that is rejected. It has an HTTP status and a message for the caller."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class TextAnswer(NamedTuple):
    """A plain-text response."""

    text: str


class Indented(NamedTuple):
    """A JSON response that is always indented, regardless of the query."""

    value: Any


class FileAnswer(NamedTuple):
    """A binary response that browsers save as a file."""

    name: str
    body: bytes


class Html(NamedTuple):
    """An HTML response."""

    text: str


class Later(NamedTuple):
    """A response that is slow to render. `make` renders it in a thread, from immutable values."""

    make: Callable[[], Any]


class Page(NamedTuple):
    """A debug page.

    `answer` returns plain data for JSON, a response type of this module, or an awaitable of one of these. It may raise
    `Refused`. The index links to the page with the queries in `examples`. `of_proxy` is true if the page requires a
    proxyID, and `optional_proxy` if it accepts one. The response then names the proxy in a header. `listed` is true if
    the page is in /debug/list.
    """

    path: str
    about: str
    answer: Callable[[Sources, Query], Any]
    examples: tuple[str, ...] = ()
    of_proxy: bool = False
    optional_proxy: bool = False
    listed: bool = True


class Answer(NamedTuple):
    """An HTTP response whose body consists of `parts`. `headers` does not include the content type."""

    status: int
    content_type: str
    parts: Sequence[bytes]
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.parts)


async def answer(page: Page, sources: Sources, query: Query) -> Answer:
    """Return the response of a page. If the page raises `Refused`, return an error response.

    Slow work is done in slices or in a thread.
    """
    try:
        with without_collections():
            headers = {}
            if page.of_proxy or (page.optional_proxy and query.get("proxyID")):
                headers = {PROXY_HEADER: _header(requested_connection(sources, query).proxy.id)}
            value = page.answer(sources, query)
            if inspect.isawaitable(value):
                value = await value
            response = await asyncio.to_thread(
                lambda: encode(value.make() if isinstance(value, Later) else value, query)
            )
            return response._replace(headers={**response.headers, **headers})
    except Refused as refused:
        return Answer(refused.status, TEXT, (refused.text.encode(errors="backslashreplace"),))


def _header(proxy_id: str) -> str:
    """Return a proxy's ID as the value of a header. Characters that headers cannot contain are percent-encoded."""
    return urllib.parse.quote(proxy_id, safe="~!@$^&*()-_=+[]{};:,./?| ")


def encode(value: Any, query: Query) -> Answer:
    """Encode the value that a page returns. JSON is compact, or indented by four if the query contains `pretty`."""
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


def find_connection(sources: Sources, text: str, namespace: str = "") -> ConnectedProxy:
    """Return the connection that `text` selects, among those of a namespace unless it is "".

    It is the ID of a connection or a proxy, the name of a Pod, or part of an ID. The first of these forms that matches
    a connection applies. If the same proxy has several connections, the latest is returned. If there is no match, it
    is the name or host of a service, of which the first connected proxy by ID is returned. "svc/" or "service/" before
    the text selects only services. Raise Refused if there is no match (404), or if several proxies match (409).
    """
    connections = [c for c in sources.fleet.connections() if namespace in ("", c.proxy.namespace)]
    prefix = next((prefix for prefix in _SERVICE_PREFIXES if text.startswith(prefix)), "")
    if prefix:
        return _find_proxy_of_service(sources, text.removeprefix(prefix), namespace, connections)
    for matches in (
        [c for c in connections if text in (c.id, c.proxy.id)],
        [c for c in connections if text == c.proxy.id.removesuffix(f".{c.proxy.namespace}")],
        [c for c in connections if text in c.id],
    ):
        latest = {(c.proxy.cluster_id, c.proxy.id): c for c in sorted(matches, key=lambda c: c.connected_at)}
        if len(latest) == 1:
            return next(iter(latest.values()))
        if latest:
            raise Refused(409, _ambiguous(text, list(latest.values())))
    if _find_services(sources, text, namespace):
        return _find_proxy_of_service(sources, text, namespace, connections)
    raise Refused(404, NOT_CONNECTED + _describe_pod(sources, text, namespace))


def _describe_pod(sources: Sources, text: str, namespace: str) -> str:
    """Return a line that says that a Pod POD.NAMESPACE has no connected proxy, or "" if there is no such Pod."""
    name, _, place = text.rpartition(".") if not namespace else (text.removesuffix(f".{namespace}"), "", namespace)
    if POD.table(sources.db).peek(RegistryKey(sources.db.settings.registry.cluster_id, place, name)) is None:
        return ""
    return f"Pod {place}/{name} exists, but no proxy of it is connected; see pilotctl check-inject {name}.{place}\n"


def _find_services(sources: Sources, text: str, namespace: str) -> tuple[ServiceRef, ...]:
    """Return the services with a host, or with a name NAME.NAMESPACE, or NAME if there is a namespace."""
    suffix = f"svc.{sources.db.settings.registry.domain}"
    hosts = (text, f"{text}.{suffix}", *((f"{text}.{namespace}.{suffix}",) if namespace else ()))
    refs = (ref for host in hosts for ref in refs_by_hostname(sources.db, host))
    return tuple(dict.fromkeys(ref for ref in refs if namespace in ("", ref.namespace)))


def _find_proxy_of_service(
    sources: Sources, text: str, namespace: str, connections: Sequence[ConnectedProxy]
) -> ConnectedProxy:
    """Return the first proxy by ID of the endpoints of a service. Raise Refused if there is none."""
    refs = _find_services(sources, text, namespace)
    if not refs:
        within = f" in namespace {namespace}" if namespace else "; use NAME.NAMESPACE or the whole host"
        raise Refused(404, f"no service {text!r}{within}\n")
    addresses = {
        address
        for ref in refs
        if (target := service(sources.db, ref)) is not None
        for port in target.ports
        for endpoint in endpoints(sources.db, ref, port.number)
        for address in endpoint.addresses
    }
    matches = [c for c in connections if not addresses.isdisjoint(c.proxy.ips)]
    if not matches:
        hostname = refs[0].hostname
        hint = f"pilotctl describe svc/{hostname} describes the service itself"
        raise Refused(404, f"no endpoint of the service {hostname} has a connected proxy; {hint}\n")
    return min(sorted(matches, key=lambda c: -c.connected_at), key=lambda c: c.proxy.id)


def _ambiguous(text: str, connections: Sequence[ConnectedProxy]) -> str:
    """Return the message for a name that several proxies match. It lists proxies with equal IDs by connection."""
    ids = Counter(c.proxy.id for c in connections)
    names = sorted(
        c.proxy.id if ids[c.proxy.id] == 1 and c.proxy.id != text else f"{c.id} (cluster {c.proxy.cluster_id})"
        for c in connections
    )
    more = f" and {len(names) - _CANDIDATES} more" if len(names) > _CANDIDATES else ""
    return f"{text!r} matches {len(names)} proxies: {', '.join(names[:_CANDIDATES])}{more}; specify one of them\n"


def requested_connection(sources: Sources, query: Query) -> ConnectedProxy:
    """Return the connection that the query's proxyID and namespace select. Raise Refused as `find_connection` does."""
    proxy_id = query.get("proxyID", "")
    if not proxy_id:
        raise Refused(400, NO_PROXY_ID)
    return find_connection(sources, proxy_id, query.get("namespace", ""))
