"""ControlZ over HTTP: HTML pages at /<topic>z/ and JSON at /<topic>j/, with the status codes that istioctl expects."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from pilot.controlz import site
from pilot.controlz.control import Control
from pilot.controlz.metric_list import metric_list
from pilot.controlz.process import home, memory_statistics, process_facts
from pilot.controlz.scopes import WrongRequestError, all_scopes, change_scope, one_scope
from pilot.lib.host_header import is_own_name
from pilot.lib.redaction import redacted_arguments, redacted_environment

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Make = Callable[[web.Request], Any]
MAX_BODY_SIZE = 16 * 1024
BODY_SECONDS = 10.0
EXIT_SECONDS = 1.0
"""Seconds between the response and the exit, so that the client receives the response."""
SIGNAL = "SIGUSR1"


def application(control: Control) -> web.Application:
    """Return the web application with all pages and their JSON API."""
    app = web.Application(middlewares=[_reject_foreign_hosts, _plain_errors], client_max_size=MAX_BODY_SIZE)
    sources = _sources(control)
    app.router.add_get("/", _page(site.home_page, lambda request: home(control.name, _own_address(request))))
    _add_data(app, "home", lambda request: home(control.name, _own_address(request)))
    for topic in site.TOPICS:
        page = _page(topic.render, sources[topic.name])
        app.router.add_get(f"/{topic.name}z", page)
        app.router.add_get(f"/{topic.name}z/", page)
        if topic.as_data:
            _add_data(app, topic.name, sources[topic.name])
    app.router.add_get("/scopej/{name}", _data(lambda request: one_scope(request.match_info["name"])))
    app.router.add_put("/scopej/{name}", _change_scope)
    app.router.add_put("/homej/exit", _exit(control))
    _add_command(app, "/memj/forcecollection", gc.collect, "PUT")
    _add_command(app, f"/signalj/{SIGNAL}", control.stacks, "PUT", "POST")
    return app


def _sources(control: Control) -> dict[str, Make]:
    """Return the data source of each topic."""
    build = control.build
    version = {
        "version": build.version,
        "revision": build.revision,
        "golang_version": "",
        "status": build.status,
        "tag": build.tag,
    }
    return {
        "scope": lambda _: all_scopes(),
        "mem": lambda _: memory_statistics(),
        "env": lambda _: redacted_environment(control.environ),
        "proc": lambda _: process_facts(),
        "arg": lambda _: redacted_arguments(control.arguments),
        "version": lambda _: version,
        "metric": lambda _: asyncio.to_thread(lambda: metric_list(control.exposition())),
        "signal": lambda _: (SIGNAL,),
    }


def _add_data(app: web.Application, topic: str, make: Make) -> None:
    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=301, headers={"Location": f"/{topic}j/"})

    app.router.add_get(f"/{topic}j/", _data(make))
    app.router.add_get(f"/{topic}j", redirect)


def _data(make: Make) -> Handler:
    """Return a handler that responds with JSON. As in istiod, the content type is plain text."""

    async def handle(request: web.Request) -> web.Response:
        return _text(200, msgspec.json.encode(await _fetch(make, request)).decode() + "\n")

    return handle


def _page(render: Callable[[Any], str], make: Make) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=render(await _fetch(make, request)), content_type="text/html", charset="utf-8")

    return handle


async def _fetch(make: Make, request: web.Request) -> Any:
    """Return the data of a topic. Slow sources return an awaitable that runs in a thread."""
    value = make(request)
    return await value if inspect.isawaitable(value) else value


def _add_command(app: web.Application, path: str, run: Callable[[], object], *methods: str) -> None:
    """Add a path that runs an action and responds with status 202. For other methods, the status is 404."""

    async def handle(request: web.Request) -> web.Response:
        if request.method not in methods:
            raise web.HTTPNotFound
        run()
        return web.Response(status=202)

    app.router.add_route("*", path, handle)


def _exit(control: Control) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        asyncio.get_running_loop().call_later(EXIT_SECONDS, control.end)
        return web.Response(status=202)

    return handle


async def _change_scope(request: web.Request) -> web.Response:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except TimeoutError:
        return _text(408, "timed out reading the request body\n")
    change_scope(request.match_info["name"], body)
    return web.Response(status=202)


@web.middleware
async def _reject_foreign_hosts(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reject a request whose Host header does not name this machine, to prevent DNS rebinding attacks."""
    if not is_own_name(request.headers.get("Host", "")):
        return _text(403, "forbidden Host: use an IP address, localhost or this machine's host name\n")
    return await handler(request)


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert errors to responses in the same form as istiod.

    An unknown path gets a page, a wrong method gets no body, and an invalid request gets the reason.
    """
    try:
        return await handler(request)
    except WrongRequestError as error:
        return _text(400, f"{error}\n")
    except web.HTTPNotFound:
        return web.Response(status=404, text=site.not_found_page(), content_type="text/html", charset="utf-8")
    except web.HTTPMethodNotAllowed as error:
        return web.Response(status=405, headers={"Allow": error.headers.get("Allow", "")})
    except web.HTTPRequestEntityTooLarge:
        return _text(413, f"the request body exceeds {MAX_BODY_SIZE} bytes\n")


def _text(status: int, text: str) -> web.Response:
    return web.Response(
        status=status,
        body=text.encode(errors="backslashreplace"),
        headers={"Content-Type": "text/plain; charset=utf-8"},
    )


def _own_address(request: web.Request) -> str:
    """Return the local address of the client's connection."""
    name = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return str(name[0]) if name else ""
