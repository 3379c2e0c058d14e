"""The SDS server for Envoy, on a Unix socket.

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
from pilot.lib.logging.log import scope

SERVICE = "envoy.service.secret.v3.SecretDiscoveryService"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
MAX_NAMES = 1000
"""Maximum number of secrets per stream. Envoy requests one secret per stream."""
_log = scope("sds")


class SecretStream:
    """The state machine of one SDS stream. Performs no I/O."""

    def __init__(self, secrets: SecretCache) -> None:
        self._secrets, self._names, self._sent_versions, self._nonce = secrets, list[str](), dict[str, int](), 0

    def receive(self, request: discovery_pb2.DiscoveryRequest) -> None:
        """Process a request: the first one, an ACK, a NACK or a change of names.

        Raises ValueError if it has too many names.
        """
        if request.response_nonce and request.response_nonce != str(self._nonce):
            return  # stale: refers to an older response
        if request.HasField("error_detail"):
            _log.warning("Envoy rejected the secrets %s: %s", ", ".join(self._names), request.error_detail.message)
        names = list(dict.fromkeys(request.resource_names))
        if len(names) > MAX_NAMES:
            raise ValueError(f"{len(names)} secrets were requested; at most {MAX_NAMES} are allowed")
        self._names = names
        for name in set(self._sent_versions) - set(names):
            del self._sent_versions[name]

    @property
    def names(self) -> list[str]:
        """Return the names of the requested secrets."""
        return self._names

    def next_response(self) -> bytes | None:
        """Return a response with all requested secrets that are available, or None if nothing changed since the last
        response."""
        secrets = {name: secret for name in self._names if (secret := self._secrets.get(name)) is not None}
        versions = {name: secret.version for name, secret in secrets.items()}
        if versions == self._sent_versions or not secrets:
            return None
        self._sent_versions, self._nonce = versions, self._nonce + 1
        response = discovery_pb2.DiscoveryResponse(
            type_url=SECRET, version_info=str(max(versions.values())), nonce=str(self._nonce)
        )
        for secret in secrets.values():
            response.resources.add(type_url=SECRET, value=secret.body)
        body: bytes = response.SerializeToString()
        return body


class SecretDiscoveryService:
    """The gRPC service. `on_request` is called with each requested name before it is looked up."""

    def __init__(self, secrets: SecretCache, on_request: Callable[[str], None] = lambda name: None) -> None:
        self._secrets, self._on_request = secrets, on_request

    def handlers(self) -> Any:
        """Return the handler for `grpc.aio.Server.add_generic_rpc_handlers`."""
        return grpc.method_handlers_generic_handler(
            SERVICE, {"StreamSecrets": grpc.stream_stream_rpc_method_handler(self._serve)}
        )

    async def _serve(self, _: Any, context: Any) -> None:
        stream, changed = SecretStream(self._secrets), self._secrets.watch()
        reader = asyncio.create_task(self._read(stream, context, changed))
        try:
            while not reader.done():
                changed.clear()
                while (response := stream.next_response()) is not None:
                    await context.write(response)
                await changed.wait()
            reader.result()
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._secrets.unwatch(changed)
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reader

    async def _read(self, stream: SecretStream, context: Any, changed: asyncio.Event) -> None:
        try:
            while (raw := await context.read()) is not EOF:
                try:
                    request = discovery_pb2.DiscoveryRequest.FromString(raw)
                except DecodeError as error:
                    raise ValueError("malformed request") from error
                stream.receive(request)
                for name in stream.names:
                    self._on_request(name)
                changed.set()
        finally:
            changed.set()
