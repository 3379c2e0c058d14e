"""The API server itself: HTTP in, answers out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from aiohttp import web

from testing.apiserver import openapi_v2
from testing.apiserver.admission import Webhooks
from testing.apiserver.defaults import default
from testing.apiserver.discovery import discovery
from testing.apiserver.faults import Faults
from testing.apiserver.lists import Lists
from testing.apiserver.openapi import openapi
from testing.apiserver.port_forward import PortForwards
from testing.apiserver.representation import Form
from testing.apiserver.request_info import Asked, parse
from testing.apiserver.resource import CRDS, NAMESPACES, Resources, of_definition
from testing.apiserver.schemas import enforce
from testing.apiserver.status_error import Refusal, not_found
from testing.apiserver.store import Event, Plain, Store, Stored, encode
from testing.apiserver.tokens import Tokens
from testing.apiserver.watches import Watches
from testing.apiserver.writes import Writes

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _refuse(_: Any, transport: asyncio.Transport) -> None:
    """End a connection that was accepted in the moment in which a server stopped: nobody would answer on it."""
    transport.abort()


class ApiServer:
    """An API server. Objects can be put into it and taken from it without HTTP too, by `put`, `delete` and `get`.

    `start` and `stop` may be called again and again: what is stored stays, and so does the port.
    """

    def __init__(self, now: Callable[[], float] = time.time, tls: ssl.SSLContext | None = None) -> None:
        self.resources, self.store, self.faults, self.tokens = Resources(), Store(now), Faults(), Tokens()
        self.requests: list[Asked] = []
        self.port = 0
        self._tls = tls
        self._lists, self._watches = Lists(self.store), Watches(self.store, self.faults)
        self.webhooks, self.forwards = Webhooks(self.store), PortForwards()
        self.writes = Writes(self.store, [default, self.webhooks.mutate, enforce, self.webhooks.validate])
        self.store.on_change.append(self._defined)
        self._runner: web.AppRunner | None = None

    # -- without HTTP --------------------------------------------------------------------------------------------------

    def put(self, plain: Mapping[str, Any]) -> Stored:
        """Store an object as it is, its status and its times included."""
        resource = self.resources.of_object(plain)
        metadata = dict(plain["metadata"])
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        rest = {k: v for k, v in plain.items() if k not in ("apiVersion", "kind", "metadata")}
        return self.store.put(
            resource.id, {"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata, **rest}
        )

    def apply(self, text: str) -> None:
        """Store the objects of a YAML text."""
        for plain in yaml.safe_load_all(text):
            if plain:
                self.put(plain)

    def delete(self, plain: Mapping[str, Any]) -> None:
        """Take an object away."""
        resource = self.resources.of_object(plain)
        namespace = plain["metadata"].get("namespace", "default") if resource.namespaced else ""
        self.store.delete(resource.id, (namespace, plain["metadata"]["name"]))

    def remove(self, plain: Mapping[str, Any]) -> None:
        """Take an object away, if it is there."""
        with contextlib.suppress(KeyError):
            self.delete(plain)

    def get(self, group: str, plural: str, namespace: str, name: str) -> Plain | None:
        """Return an object; None where there is none."""
        stored = self.store.get((group, plural), (namespace, name))
        return stored.plain if stored is not None else None

    # -- its life ------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def is_listening(self) -> bool:
        return self._runner is not None

    async def start(self) -> None:
        """Listen on a port of its own, the same one after each stop."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End all connections; nobody is answered from now on."""
        self.faults.end_watches("abort")
        if self._runner is not None:
            for site in list(self._runner.sites):
                await site.stop()
            assert self._runner.server is not None
            self._runner.server.connection_made = _refuse  # type: ignore[method-assign,assignment]
            await self._runner.cleanup()
            self._runner = None

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            user = self.tokens.user_of(request.headers.get("Authorization", ""))
            found = discovery(request.path, self.resources) or openapi(request.path, self.resources)
            if found is not None:
                return _json(found)
            if request.path == openapi_v2.PATH:
                return web.Response(body=openapi_v2.openapi_v2(self.resources), content_type=openapi_v2.MEDIA_TYPE)
            asked = parse(request.method, request.path, request.query, self.resources)
            self.requests.append(asked)
            await self.faults.meet(asked)
            self.tokens.check(user, asked)
            return await self._answer(asked, request)
        except Refusal as refusal:
            headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after is not None else {}
            return web.Response(
                status=refusal.code, body=encode(refusal.status()), content_type="application/json", headers=headers
            )

    async def _answer(self, asked: Asked, request: web.Request) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        if (asked.resource.kind, asked.subresource) == ("Pod", "portforward"):
            return await self.forwards.answer(asked, request)
        if asked.verb == "watch":
            return await self._watches.answer(asked, request)
        if asked.verb == "list":
            return _body(self._lists.answer(asked, accept))
        form = Form(asked.resource, asked.version, accept)
        match asked.verb:
            case "get":
                return _body(form.object(self._stored(asked)))
            case "create":
                return await self._create(asked, request, form)
            case "update":
                return _body(form.object(_as_stored(await self.writes.update(asked, await _plain(request)))))
            case "patch":
                changed = await self.writes.patch(asked, await _plain(request), request.content_type)
                return _body(form.object(_as_stored(changed)))
            case "delete":
                options = await _plain(request) if request.can_read_body else {}
                return _body(form.object(_as_stored(await self.writes.delete(asked, options))))
        for namespace, name in [
            key for key in self.store.collection(asked.resource.id).objects if asked.namespace in ("", key[0])
        ]:
            await self.writes.delete(asked._replace(namespace=namespace, name=name), {})
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    async def _create(self, asked: Asked, request: web.Request, form: Form) -> web.Response:
        given = await _plain(request)
        if (asked.resource.kind, asked.subresource) == ("ServiceAccount", "token"):
            return _json(self.tokens.request(asked, given), 201)
        if asked.resource.create_only:
            return _json(self.tokens.review(asked, given), 201)
        return _body(form.object(_as_stored(await self.writes.create(asked, given))), 201)

    def _stored(self, asked: Asked) -> Stored:
        stored = self.store.get(asked.resource.id, asked.key)
        if stored is None:
            raise not_found(asked.resource.plural, asked.resource.group, asked.name)
        return stored

    # -- what follows from objects -------------------------------------------------------------------------------------

    def _defined(self, resource: tuple[str, str], event: Event) -> None:
        """Serve what definitions define, and empties a namespace that is gone."""
        if resource == CRDS and event.after is not None:
            self.resources.add(of_definition(event.after.plain))
        elif resource == CRDS and event.before is not None:
            gone = of_definition(event.before.plain)
            for name in list(self.store.collection(gone.id).objects):
                self.store.delete(gone.id, name)
            self.resources.remove(*gone.id)
        elif resource == NAMESPACES and event.after is None:
            for other in self.resources:
                for name in [
                    name
                    for name in self.store.collection(other.id).objects
                    if other.namespaced and name[0] == event.name[1]
                ]:
                    self.store.delete(other.id, name)


def _as_stored(plain: Plain) -> Stored:
    rest = encode({key: value for key, value in plain.items() if key not in ("apiVersion", "kind")})
    return Stored(plain, rest[1:], 0)


async def _plain(request: web.Request) -> Any:
    text = await request.text()
    try:
        is_json = "yaml" not in request.content_type or text.startswith(
            "{"
        )  # what clients apply is JSON most of the time, which is YAML too
        return json.loads(text) if is_json else yaml.load(text, _LOADER)
    except ValueError as fault:
        raise Refusal(400, f"the object provided is unrecognized: {fault}") from fault


def _json(plain: Mapping[str, Any], code: int = 200) -> web.Response:
    return _body(encode(plain), code)


def _body(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, content_type="application/json")
