"""The pages over HTTP."""

from __future__ import annotations

import asyncio
import functools
import gzip
import ipaddress
import posixpath
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from pilot.debug.access import sources_for
from pilot.debug.dashboard.routes import Dashboard
from pilot.debug.index import render_index
from pilot.debug.page import TEXT, Answer, Page, Refused, answer
from pilot.debug.pages import sections
from pilot.debug.profiles import UNKNOWN
from pilot.debug.sources import Sources
from pilot.lib.exposition import CONTENT_TYPE

AT_ONCE = 16
"""Pages that are made or read at once: a large one has tens of megabytes, for as long as somebody reads it."""
PIECE = 1 << 18
"""Bytes of an answer that are written at once."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(sources: Sources) -> web.Application:
    """Returns the whole monitoring port: /metrics, /version and the debug pages."""
    app = web.Application(middlewares=[not_found])
    app.router.add_route("*", "/metrics", _metrics(sources))
    app.router.add_route("*", "/version", _version(sources))
    add_debug(app, sources)
    return app


def add_debug(app: web.Application, sources: Sources) -> None:
    """Adds the pages below /debug, unless ENABLE_DEBUG_ON_HTTP is false. The index alone is for everybody."""
    if not sources.settings.pages:
        return
    app.router.add_route("*", "/", _index(sources))
    app.router.add_route("*", "/debug", _index(sources))
    Dashboard(sources, functools.partial(_seen, sources)).add_to(app)
    room = asyncio.Semaphore(AT_ONCE)
    for page in (page for pages in sections(sources.settings).values() for page in pages):
        app.router.add_route("*", page.path, _page(sources, page, room))
    if sources.settings.profiles:
        app.router.add_route("*", UNKNOWN.path, _page(sources, UNKNOWN, room))


@web.middleware
async def not_found(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Unknown paths get the text that Go's servers give; those with empty or dotted steps are sent to the path without them, which
    istioctl relies on: it asks for //version."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        asked = request.rel_url.raw_path
        if (clean := clean_path(asked)) != asked:
            return web.Response(status=307, headers={"Location": f"{clean}?{request.query_string}".removesuffix("?")})
        return web.Response(status=404, text="404 page not found\n")


def clean_path(path: str) -> str:
    """Returns the path without empty and dotted steps; a slash at its end stays."""
    clean = posixpath.normpath("/" + path.lstrip("/"))
    return f"{clean}/" if path.endswith("/") and clean != "/" else clean


def is_loopback(request: web.Request) -> bool:
    """Returns whether the peer is on this machine."""
    try:
        address = ipaddress.ip_address((request.remote or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _page(sources: Sources, page: Page, room: asyncio.Semaphore) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            seen = await _seen(sources, request, page.path)
        except Refused as refused:
            return web.Response(status=refused.status, body=refused.text.encode(), headers={"Content-Type": TEXT})
        async with room:
            made: Answer = await answer(page, seen, request.query)
            return await _respond(request, made)

    return handle


async def _respond(request: web.Request, made: Answer) -> web.StreamResponse:
    """Sends an answer; of a large one a piece at a time, as fast as it is read."""
    headers = {"Content-Type": made.content_type, "Content-Length": str(sum(map(len, made.parts))), **made.headers}
    response = web.StreamResponse(status=made.status, headers=headers)
    await response.prepare(request)
    if request.method != "HEAD":
        for piece in (part[start : start + PIECE] for part in made.parts for start in range(0, len(part), PIECE)):
            await response.write(piece)
            await asyncio.sleep(0)  # where the reader is fast, nothing else would give others their turn
    await response.write_eof()
    return response


async def _seen(sources: Sources, request: web.Request, path: str) -> Sources:
    """Returns what a request may see of a path; everything where it comes from this machine. Refused where it may see nothing."""
    return sources if is_loopback(request) else sources_for(sources, path, await _identities(sources, request))


async def _identities(sources: Sources, request: web.Request) -> Sequence[str]:
    return await sources.identify(
        request.remote or "", {name.lower(): value for name, value in request.headers.items()}
    )


def _index(sources: Sources) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        shown = render_index(sections(sources.settings), sources if is_loopback(request) else None)
        return web.Response(text=shown, content_type="text/html")

    return handle


def _version(sources: Sources) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=str(sources.build))

    return handle


def _metrics(sources: Sources) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        if sources.settings.metrics_loopback_only and not is_loopback(request):
            return web.Response(status=403, text="Only requests from localhost are allowed\n")
        body, headers = sources.metrics.exposition(), {"Content-Type": CONTENT_TYPE}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = gzip.compress(body, 6), "gzip"
        return web.Response(body=body, headers=headers)

    return handle
