"""SDS over a Unix socket: Envoy asks for secrets by name and gets each change of them.

https://www.envoyproxy.io/docs/envoy/latest/configuration/security/secret
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError

from pilot.agent.certificates.secret_cache import SecretCache
from pilot.agent.unix_sockets import EOF
from pilot.lib.log import scope

SERVICE = "envoy.service.secret.v3.SecretDiscoveryService"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
MAX_NAMES = 1000
"""Secrets that one stream may ask for; Envoy asks for one on each."""
_log = scope("sds")


class SecretStream:
    """What one stream asked for and was sent: requests in, responses out, no I/O."""

    def __init__(self, secrets: SecretCache) -> None:
        self._secrets, self._names, self._sent, self._nonce = secrets, list[str](), dict[str, int](), 0

    def receive(self, request: discovery_pb2.DiscoveryRequest) -> None:
        """Takes a request: the first one, an ACK, a NACK, or one with other names. ValueError where it asks for too much."""
        if request.response_nonce and request.response_nonce != str(self._nonce):
            return  # it answers an older response
        if request.HasField("error_detail"):
            _log.warning("Envoy does not take the secrets %s: %s", ", ".join(self._names), request.error_detail.message)
        names = list(dict.fromkeys(request.resource_names))
        if len(names) > MAX_NAMES:
            raise ValueError(f"{len(names)} secrets are asked for, the most is {MAX_NAMES}")
        self._names = names
        for name in set(self._sent) - set(names):
            del self._sent[name]

    @property
    def names(self) -> list[str]:
        """The secrets that are asked for."""
        return self._names

    def take(self) -> bytes | None:
        """Returns the response that is due, with all that is there of what was asked for; None where nothing changed since the last one."""
        held = {name: secret for name in self._names if (secret := self._secrets.get(name)) is not None}
        versions = {name: secret.version for name, secret in held.items()}
        if versions == self._sent or not held:
            return None
        self._sent, self._nonce = versions, self._nonce + 1
        response = discovery_pb2.DiscoveryResponse(
            type_url=SECRET, version_info=str(max(versions.values())), nonce=str(self._nonce)
        )
        for secret in held.values():
            response.resources.add(type_url=SECRET, value=secret.body)
        body: bytes = response.SerializeToString()
        return body


class SecretDiscoveryService:
    """The service. `wanted` is told each name that is asked for, so that secrets of files are read."""

    def __init__(self, secrets: SecretCache, wanted: Callable[[str], None] = lambda name: None) -> None:
        self._secrets, self._wanted = secrets, wanted

    def handlers(self) -> Any:
        """Returns what `grpc.aio.Server.add_generic_rpc_handlers` takes."""
        return grpc.method_handlers_generic_handler(
            SERVICE, {"StreamSecrets": grpc.stream_stream_rpc_method_handler(self._serve)}
        )

    async def _serve(self, _: Any, context: Any) -> None:
        stream, changed = SecretStream(self._secrets), self._secrets.watch()
        reading = asyncio.create_task(self._read(stream, context, changed))
        try:
            while not reading.done():
                changed.clear()
                while (response := stream.take()) is not None:
                    await context.write(response)
                await changed.wait()
            reading.result()
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._secrets.unwatch(changed)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reading

    async def _read(self, stream: SecretStream, context: Any, changed: asyncio.Event) -> None:
        try:
            while (raw := await context.read()) is not EOF:
                try:
                    request = discovery_pb2.DiscoveryRequest.FromString(raw)
                except DecodeError as error:
                    raise ValueError("malformed request") from error
                stream.receive(request)
                for name in stream.names:
                    self._wanted(name)
                changed.set()
        finally:
            changed.set()
