"""The monitoring port: metrics, version and debug pages over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import posixpath
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from pilot.debug.access import sources_for, tenant_of
from pilot.debug.answer_slots import TooManyWaiting
from pilot.debug.dashboard.routes import Dashboard
from pilot.debug.page import TEXT, Answer, Page, Refused, answer
from pilot.debug.page_routes import sections
from pilot.debug.pages.index import render_index
from pilot.debug.pages.profiles import UNKNOWN
from pilot.debug.reuse import Reuse
from pilot.debug.shared_exposition import SharedExposition
from pilot.debug.sources import Sources
from pilot.lib.build_info import VERSION_HEADER
from pilot.lib.host_header import is_own_name
from pilot.lib.metrics.exposition import CONTENT_TYPE

CHUNK = 1 << 18
"""Number of bytes of a response to write at a time."""
GUARDED_PATHS = ("/debug", "/metrics", "/version")
CHANGES = frozenset({"push", "clear"})
"""Query parameters with which a page changes the state of the process."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(sources: Sources) -> web.Application:
    """Return the web application of the monitoring port, with /metrics, /version and the debug pages."""
    app = web.Application(middlewares=[not_found])
    app.router.add_route("*", "/metrics", _metrics(sources))
    app.router.add_route("*", "/version", _version(sources))
    add_debug(app, sources)
    return app


def add_debug(app: web.Application, sources: Sources) -> None:
    """Add the pages below /debug unless ENABLE_DEBUG_ON_HTTP is false.

    All pages except the index require authorization.
    """
    app.middlewares.append(reject_foreign_sites)
    app.on_response_prepare.append(_add_version(sources.build.version))
    if not sources.settings.pages:
        return
    dashboard = Dashboard(sources, functools.partial(_visible_sources, sources))
    index = _index(sources, dashboard)
    app.router.add_route("*", "/", index)
    app.router.add_route("*", "/debug", index)
    dashboard.add_to(app)
    for page in (page for pages in sections(sources.settings).values() for page in pages):
        app.router.add_route("*", page.path, _page(sources, page))
    if sources.settings.profiles:
        app.router.add_route("*", UNKNOWN.path, _page(sources, UNKNOWN))


def _add_version(version: str) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    async def add(_: web.Request, response: web.StreamResponse) -> None:
        response.headers[VERSION_HEADER] = version

    return add


@web.middleware
async def not_found(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Respond to unknown paths as Go's servers do.

    If a path contains empty or dot segments, redirect to the clean path. istioctl relies on this, because it requests
    //version. For any other unknown path, return Go's 404 text.
    """
    try:
        return await handler(request)
    except web.HTTPNotFound:
        raw_path = request.rel_url.raw_path
        if (clean := clean_path(raw_path)) != raw_path:
            return web.Response(status=307, headers={"Location": f"{clean}?{request.query_string}".removesuffix("?")})
        return web.Response(status=404, text="404 page not found\n")


@web.middleware
async def reject_foreign_sites(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reject requests that a web page sends through a browser on this machine, or through a port-forward.

    Callers on the loopback interface are trusted. A web page could otherwise read everything through DNS rebinding, and
    change the state of the process through a link or a form. Other clients may also use GET for changes, as with
    istiod.
    """
    is_guarded = request.path == "/" or request.path.startswith(GUARDED_PATHS)
    if is_guarded and is_loopback(request):
        if not is_own_name(request.headers.get("Host", "")):
            return _forbidden("forbidden Host: use an IP address, localhost or this machine's host name")
        if _changes_state(request) and _is_cross_site(request):
            return _forbidden("pages of other sites may not send this request")
    return await handler(request)


def _changes_state(request: web.Request) -> bool:
    return (
        request.method not in ("GET", "HEAD")
        or request.path == "/debug/force_disconnect"
        or not CHANGES.isdisjoint(request.query)
    )


def _is_cross_site(request: web.Request) -> bool:
    """Return whether a browser sent the request on behalf of a web page from another origin."""
    origin = request.headers.get("Origin", "")
    return request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") or (
        origin != "" and origin.partition("://")[2] != request.headers.get("Host", "")
    )


def _forbidden(text: str) -> web.Response:
    return web.Response(status=403, text=f"{text}\n")


def clean_path(path: str) -> str:
    """Return the path without empty and dot segments. A trailing slash is preserved."""
    clean = posixpath.normpath("/" + path.lstrip("/"))
    return f"{clean}/" if path.endswith("/") and clean != "/" else clean


def is_loopback(request: web.Request) -> bool:
    """Return whether the peer has a loopback address."""
    try:
        address = ipaddress.ip_address((request.remote or "").partition("%")[0])
    except ValueError:
        return False
    ipv4 = getattr(address, "ipv4_mapped", None)
    return (ipv4 or address).is_loopback


def _page(sources: Sources, page: Page) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        visible, tenant = sources, None
        try:
            if not is_loopback(request):
                identities = await _identities(sources, request)
                visible, tenant = sources_for(sources, page.path, identities), tenant_of(sources, identities)
        except Refused as refused:
            return web.Response(status=refused.status, body=refused.text.encode(), headers={"Content-Type": TEXT})
        try:
            async with sources.slots.hold(tenant):
                page_answer: Answer = await answer(page, visible, request.query)
                return await _respond(request, page_answer)
        except TooManyWaiting as error:
            sources.metrics.caller_limit_exceeded("debug_answers")
            return web.Response(status=429, text=f"{error}\n")

    return handle


async def _respond(request: web.Request, page_answer: Answer) -> web.StreamResponse:
    """Send a response in chunks, at the speed at which the client reads them."""
    headers = {
        "Content-Type": page_answer.content_type,
        "Content-Length": str(sum(map(len, page_answer.parts))),
        **page_answer.headers,
    }
    response = web.StreamResponse(status=page_answer.status, headers=headers)
    with contextlib.suppress(ConnectionResetError):  # the client has gone; aiohttp would log a traceback
        await response.prepare(request)
        if request.method != "HEAD":
            for chunk in (
                part[start : start + CHUNK] for part in page_answer.parts for start in range(0, len(part), CHUNK)
            ):
                await response.write(chunk)
                await asyncio.sleep(0)  # with a fast reader, nothing else would yield to the event loop
        await response.write_eof()
    return response


async def _visible_sources(sources: Sources, request: web.Request, path: str) -> Sources:
    """Return the sources that are visible to a request.

    All sources are visible to a caller on the loopback interface. Raise Refused if access is denied.
    """
    return sources if is_loopback(request) else sources_for(sources, path, await _identities(sources, request))


async def _identities(sources: Sources, request: web.Request) -> Sequence[str]:
    return await sources.identify(
        request.remote or "", {name.lower(): value for name, value in request.headers.items()}
    )


def _index(sources: Sources, dashboard: Dashboard) -> Handler:
    public_html = render_index(sections(sources.settings))
    shared_html, reuse, rendering = "", Reuse(), asyncio.Lock()

    async def render() -> str:
        nonlocal shared_html
        async with rendering:
            if reuse.must_compute():
                shared_html = render_index(sections(sources.settings), sources, (await dashboard.findings())[0])
                reuse.end()
            return shared_html

    async def handle(request: web.Request) -> web.Response:
        if is_loopback(request):
            async with sources.slots.hold(None):
                page_html = await render()
        else:
            page_html = public_html
        return web.Response(text=page_html, content_type="text/html")

    return handle


def _version(sources: Sources) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text="-".join(sources.build))  # istiod's form, with unknown parts

    return handle


def _metrics(sources: Sources) -> Handler:
    exposition = SharedExposition(sources.metrics.exposition)

    async def handle(request: web.Request) -> web.Response:
        if sources.settings.metrics_loopback_only and not is_loopback(request):
            return web.Response(status=403, text="Only requests from localhost are allowed\n")
        compressed = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {"Content-Type": CONTENT_TYPE, **({"Content-Encoding": "gzip"} if compressed else {})}
        return web.Response(body=exposition.body(compressed), headers=headers)

    return handle
