"""HTTP routes of the dashboard: its files, the event stream and the answers about parts of the mesh."""

from __future__ import annotations

import asyncio
import functools
import importlib.resources
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef
from pilot.debug.dashboard.fleet import list_proxies
from pilot.debug.dashboard.mesh import show_graph, slices_of_service
from pilot.debug.dashboard.nearest import find_nearest
from pilot.debug.dashboard.object_answer import describe_object
from pilot.debug.dashboard.proxy_answer import describe_proxy, list_resources, show_resource
from pilot.debug.dashboard.search import MOST, MOST_IN_FULL, search
from pilot.debug.dashboard.service_answer import describe_service
from pilot.debug.dashboard.stream import EventStream
from pilot.debug.page import Query, Refused
from pilot.debug.sources import Sources
from pilot.mesh.model.service import ServiceRef

PATH = "/debug/dashboard"
PAGE = "page.html"
FILES = (
    "page.css",
    "page.js",
    "answer.js",
    "charts.js",
    "dom.js",
    "graph.js",
    "layout.js",
    "lists.js",
    "object.js",
    "proxy.js",
    "search.js",
    "service.js",
)
MAX_ACCOUNTS = 2_000
"""Maximum number of service accounts that are offered as callers."""
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
# The page loads nothing from other origins, and no other page may frame it.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}
Access = Callable[[web.Request, str], Awaitable[Sources]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Dashboard:
    """The dashboard of a control plane.

    `access` returns the sources of a path that are visible to a request, or raises Refused.
    """

    def __init__(self, sources: Sources, access: Access) -> None:
        self._sources, self._access = sources, access
        self._stream = EventStream(sources)
        self.findings = self._stream.findings

    def add_to(self, app: web.Application) -> None:
        """Add the routes of the dashboard's page, files and data."""
        for path in (PATH, f"{PATH}/"):
            app.router.add_get(path, self._guarded(functools.partial(_file, PAGE)))
        for name in FILES:
            app.router.add_get(f"{PATH}/{name}", self._guarded(functools.partial(_file, name)))
        app.router.add_get(f"{PATH}/events", self._guarded(self._events))
        answers: dict[str, Callable[[Query], Awaitable[Any]]] = {
            "mesh": self._mesh,
            "traffic": self._traffic,
            "search": self._search,
            "service": self._service,
            "accounts": self._accounts,
            "nearest": self._nearest,
            "object": self._object,
            "proxies": self._proxies,
            "proxy": self._proxy,
            "resources": self._resources,
            "resource": self._resource,
        }
        for name, answer in answers.items():
            app.router.add_get(f"{PATH}/{name}", self._guarded(functools.partial(self._answer, answer)))
        app.on_shutdown.append(self._stop)

    async def _stop(self, _: web.Application) -> None:
        self._stream.close()

    def _guarded(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                await self._access(request, PATH)
                return await handler(request)
            except Refused as refused:
                return web.Response(status=refused.status, text=refused.text)

        return handle

    async def _answer(self, answer: Callable[[Query], Awaitable[Any]], request: web.Request) -> web.StreamResponse:
        """Return an answer as JSON. The answers share the limit on concurrent responses of debug pages."""
        async with self._sources.slots.hold(None):
            value = await answer(request.query)
            body = await asyncio.to_thread(msgspec.json.encode, value)
        return web.Response(body=body, content_type="application/json", headers=_HEADERS)

    # -- answers -------------------------------------------------------------------------------------------------------

    async def _mesh(self, query: Query) -> Any:
        """Return the mesh graph, with the services of the namespace in the query."""
        graph, context = await self._stream.graph.get(), await self._stream.context()
        return await asyncio.to_thread(show_graph, graph, context, query.get("namespace", ""))

    async def _traffic(self, query: Query) -> Any:
        return await self._stream.traffic.show(await self._stream.graph.get(), query.get("namespace", ""))

    async def _search(self, query: Query) -> Any:
        most = MOST_IN_FULL if "all" in query else MOST
        graph, context = await self._stream.graph.get(), await self._stream.context()
        return await search(self._sources, graph, context, query.get("text", ""), most)

    async def _service(self, query: Query) -> Any:
        """Return everything about a service. `host` may be the name of a Kubernetes Service."""
        graph, context = await self._stream.graph.get(), await self._stream.context()
        host, namespace = query.get("host", ""), query.get("namespace", "")
        full = f"{host}.{namespace}.svc.{self._sources.db.settings.registry.domain}"
        is_short = any(facts.host == full and facts.namespace == namespace for facts in graph.services)
        ref = ServiceRef(full if is_short else host, namespace)
        answer = await describe_service(self._sources, graph, context, ref)
        return answer | {"slices": slices_of_service(self._sources.db, ref)}

    async def _accounts(self, _: Query) -> Any:
        """Return the service accounts of services, to choose a caller."""
        graph = await self._stream.graph.get()
        accounts = {f"{facts.namespace}/{account}" for facts in graph.services for account in facts.accounts}
        return sorted(accounts)[:MAX_ACCOUNTS]

    async def _nearest(self, query: Query) -> Any:
        """Return similar names for an address of the page that leads nowhere. Its parts are separated by newlines."""
        return await find_nearest(self._sources, await self._stream.graph.get(), query.get("address", "").split("\n"))

    async def _object(self, query: Query) -> Any:
        kind = GroupKind(query.get("group", ""), query.get("kind", ""))
        return await describe_object(self._sources, ObjectRef(kind, query.get("namespace", ""), query.get("name", "")))

    async def _proxies(self, query: Query) -> Any:
        namespace, state, text = (query.get(name, "") for name in ("namespace", "state", "text"))
        return await list_proxies(self._sources.fleet, namespace, state, text, time.time())

    async def _proxy(self, query: Query) -> Any:
        return describe_proxy(self._sources, query.get("id", ""))

    async def _resources(self, query: Query) -> Any:
        return await list_resources(self._sources, query.get("id", ""), query.get("type", ""), query.get("text", ""))

    async def _resource(self, query: Query) -> Any:
        return await show_resource(self._sources, query.get("id", ""), query.get("type", ""), query.get("name", ""))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        events = self._stream.events()
        try:
            async for event in events:
                await response.write(event)
        except ConnectionError:  # the page was closed
            pass
        finally:
            await events.aclose()  # type: ignore[attr-defined]
        return response


async def _file(name: str, _: web.Request) -> web.StreamResponse:
    return web.Response(
        body=_content(name), content_type=_TYPES[name.rpartition(".")[2]], charset="utf-8", headers=_HEADERS
    )


@functools.cache
def _content(name: str) -> bytes:
    return importlib.resources.files("pilot.debug.dashboard").joinpath("static", name).read_bytes()
