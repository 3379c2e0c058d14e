"""The API server: routing of HTTP requests to discovery, lists, watches and writes."""

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
from testing.apiserver.representation import Representation
from testing.apiserver.request_info import RequestInfo, parse
from testing.apiserver.resource import CRDS, NAMESPACES, Resources, resource_of_crd
from testing.apiserver.schemas import enforce
from testing.apiserver.status_error import StatusError, not_found
from testing.apiserver.store import Event, Plain, Store, StoredObject, encode
from testing.apiserver.tokens import Tokens
from testing.apiserver.watches import Watches
from testing.apiserver.writes import Writes

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _refuse(_: Any, transport: asyncio.Transport) -> None:
    """Abort a connection that was accepted while the server stopped: nothing would answer on it."""
    transport.abort()


class ApiServer:
    """An API server. `put`, `delete` and `get` access its objects without HTTP.

    It can be started and stopped repeatedly: it keeps its objects and its port.
    """

    def __init__(self, now: Callable[[], float] = time.time, tls: ssl.SSLContext | None = None) -> None:
        self.resources, self.store, self.faults, self.tokens = Resources(), Store(now), Faults(), Tokens()
        self.requests: list[RequestInfo] = []
        self.logs: dict[tuple[str, str, str], str] = {}  # by namespace, Pod and container
        self.port = 0
        self._tls = tls
        self._lists, self._watches = Lists(self.store), Watches(self.store, self.faults)
        self.webhooks, self.forwards = Webhooks(self.store), PortForwards()
        self.writes = Writes(self.store, [default, self.webhooks.mutate, enforce, self.webhooks.validate])
        self.store.on_change.append(self.apply_definition)
        self._runner: web.AppRunner | None = None

    # -- without HTTP --------------------------------------------------------------------------------------------------

    def put(self, plain: Mapping[str, Any]) -> StoredObject:
        """Store an object as it is, including its status and timestamps."""
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
        """Delete an object."""
        resource = self.resources.of_object(plain)
        namespace = plain["metadata"].get("namespace", "default") if resource.namespaced else ""
        self.store.delete(resource.id, (namespace, plain["metadata"]["name"]))

    def remove(self, plain: Mapping[str, Any]) -> None:
        """Delete an object if it exists."""
        with contextlib.suppress(KeyError):
            self.delete(plain)

    def get(self, group: str, plural: str, namespace: str, name: str) -> Plain | None:
        """Return an object, or None."""
        stored = self.store.get((group, plural), (namespace, name))
        return stored.plain if stored is not None else None

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def is_listening(self) -> bool:
        return self._runner is not None

    async def start(self) -> None:
        """Listen on a free port, and on the same port after each stop."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections and stop listening."""
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
            document = discovery(request.path, self.resources) or openapi(request.path, self.resources)
            if document is not None:
                return _json(document)
            if request.path == openapi_v2.PATH:
                return web.Response(body=openapi_v2.openapi_v2(self.resources), content_type=openapi_v2.MEDIA_TYPE)
            info = parse(request.method, request.path, request.query, self.resources)
            self.requests.append(info)
            await self.faults.apply(info)
            self.tokens.check(user, info)
            return await self._answer(info, request)
        except StatusError as error:
            headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else {}
            return web.Response(
                status=error.code, body=encode(error.status()), content_type="application/json", headers=headers
            )

    async def _answer(self, info: RequestInfo, request: web.Request) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        if (info.resource.kind, info.subresource) == ("Pod", "portforward"):
            return await self.forwards.answer(info, request)
        if (info.resource.kind, info.subresource) == ("Pod", "log"):
            lines = self.logs[info.namespace, info.name, info.query.get("container", "")].splitlines(keepends=True)
            return web.Response(text="".join(lines[-int(info.query.get("tailLines", len(lines))) :]))
        if info.verb == "watch":
            return await self._watches.answer(info, request)
        if info.verb == "list":
            return _body(self._lists.answer(info, accept))
        representation = Representation(info.resource, info.version, accept)
        match info.verb:
            case "get":
                return _body(representation.object(self._stored(info)))
            case "create":
                return await self._create(info, request, representation)
            case "update":
                return _body(representation.object(_as_stored(await self.writes.update(info, await _plain(request)))))
            case "patch":
                changed = await self.writes.patch(info, await _plain(request), request.content_type)
                return _body(representation.object(_as_stored(changed)))
            case "delete":
                options = await _plain(request) if request.can_read_body else {}
                return _body(representation.object(_as_stored(await self.writes.delete(info, options))))
        for namespace, name in [
            key for key in self.store.collection(info.resource.id).objects if info.namespace in ("", key[0])
        ]:
            await self.writes.delete(info._replace(namespace=namespace, name=name), {})
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    async def _create(self, info: RequestInfo, request: web.Request, representation: Representation) -> web.Response:
        body = await _plain(request)
        if (info.resource.kind, info.subresource) == ("ServiceAccount", "token"):
            return _json(self.tokens.request(info, body), 201)
        if info.resource.create_only:
            return _json(self.tokens.review(info, body), 201)
        return _body(representation.object(_as_stored(await self.writes.create(info, body))), 201)

    def _stored(self, info: RequestInfo) -> StoredObject:
        stored = self.store.get(info.resource.id, info.key)
        if stored is None:
            raise not_found(info.resource.plural, info.resource.group, info.name)
        return stored

    # -- effects of objects --------------------------------------------------------------------------------------------

    def apply_definition(self, resource: tuple[str, str], event: Event) -> None:
        """Serve the resources of CustomResourceDefinitions, and empty a deleted namespace."""
        if resource == CRDS and event.after is not None:
            self.resources.add(resource_of_crd(event.after.plain))
        elif resource == CRDS and event.before is not None:
            deleted = resource_of_crd(event.before.plain)
            for name in list(self.store.collection(deleted.id).objects):
                self.store.delete(deleted.id, name)
            self.resources.remove(*deleted.id)
        elif resource == NAMESPACES and event.after is None:
            for other in self.resources:
                for name in [
                    name
                    for name in self.store.collection(other.id).objects
                    if other.namespaced and name[0] == event.name[1]
                ]:
                    self.store.delete(other.id, name)


def _as_stored(plain: Plain) -> StoredObject:
    rest = encode({key: value for key, value in plain.items() if key not in ("apiVersion", "kind")})
    return StoredObject(plain, rest[1:], 0)


async def _plain(request: web.Request) -> Any:
    text = await request.text()
    try:
        # Most clients apply JSON, which is valid YAML too but parsed faster.
        is_json = "yaml" not in request.content_type or text.startswith("{")
        return json.loads(text) if is_json else yaml.load(text, _LOADER)
    except ValueError as error:
        raise StatusError(400, f"the object provided is unrecognized: {error}") from error


def _json(plain: Mapping[str, Any], code: int = 200) -> web.Response:
    return _body(encode(plain), code)


def _body(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, content_type="application/json")
