"""HTTP routes of the dashboard: its files, the mesh graph and the event stream."""

from __future__ import annotations

import asyncio
import functools
import importlib.resources
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from pilot.debug.dashboard.mesh import mesh_context, show_graph
from pilot.debug.dashboard.stream import EventStream
from pilot.debug.page import Refused
from pilot.debug.sources import Sources

PATH = "/debug/dashboard"
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FILES = ("page.html", "page.css", "page.js", "picture.js", "lists.js", "plots.js")
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

    def add_to(self, app: web.Application) -> None:
        """Add the routes of the dashboard's page, files and data."""
        app.router.add_get(PATH, self._guarded(functools.partial(_file, _FILES[0])))
        for name in _FILES[1:]:
            app.router.add_get(f"{PATH}/{name}", self._guarded(functools.partial(_file, name)))
        app.router.add_get(f"{PATH}/mesh", self._guarded(self._mesh))
        app.router.add_get(f"{PATH}/events", self._guarded(self._events))
        app.on_shutdown.append(self._stop)

    async def _stop(self, _: web.Application) -> None:
        self._stream.close()

    def _guarded(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                await self._access(request, PATH)
            except Refused as refused:
                return web.Response(status=refused.status, text=refused.text)
            return await handler(request)

        return handle

    async def _mesh(self, request: web.Request) -> web.StreamResponse:
        """Return the mesh graph.

        The query parameter `namespace`, which can be repeated, requests the services of a namespace.
        """
        graph = await self._stream.graph.get()
        requested, context = frozenset(request.query.getall("namespace", [])), mesh_context(self._sources)
        body = await asyncio.to_thread(lambda: msgspec.json.encode(show_graph(graph, context, requested)))
        return web.Response(body=body, content_type="application/json", headers=_HEADERS)

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
