"""Collectors of spans: clusters that accept spans over HTTP or gRPC."""

from __future__ import annotations

import posixpath
from urllib.parse import quote

import msgspec
from envoy.config.core.v3 import base_pb2, grpc_service_pb2, http_service_pb2, http_uri_pb2

from pilot.envoy.well_known_types import build_duration
from pilot.lib.duration import Duration

DEFAULT_TIMEOUT = Duration.of(5)  # Envoy requires a timeout
_SAFE = "/%$&+,:;=@!*'()~-._"  # not escaped in paths, https://www.rfc-editor.org/rfc/rfc3986#section-3.3
Headers = tuple[tuple[str, str], ...]


class HttpCollector(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """A collector that accepts HTTP requests at a URI."""

    cluster: str
    uri: str
    timeout: Duration | None = None
    headers: Headers = ()

    def build(self) -> http_service_pb2.HttpService:
        timeout = build_duration(self.timeout if self.timeout is not None else DEFAULT_TIMEOUT)
        return http_service_pb2.HttpService(
            http_uri=http_uri_pb2.HttpUri(uri=self.uri, cluster=self.cluster, timeout=timeout),
            request_headers_to_add=[_overwrite(name, value) for name, value in self.headers],
        )


class GrpcCollector(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """A collector that accepts gRPC calls. Each call carries `headers`."""

    cluster: str
    authority: str
    timeout: Duration | None = None
    headers: Headers = ()

    def build(self) -> grpc_service_pb2.GrpcService:
        service = grpc_service_pb2.GrpcService(
            envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=self.cluster, authority=self.authority),
            initial_metadata=[base_pb2.HeaderValue(key=name, value=value) for name, value in self.headers],
        )
        if self.timeout is not None:
            service.timeout.CopyFrom(build_duration(self.timeout))
        return service


def join_url(host: str, path: str) -> str:
    """Return the URL of a host and path, without a scheme.

    Repeated slashes and dot segments in the path are resolved.
    """
    joined = posixpath.normpath(f"/{host}/{path}")[1:]
    return quote(joined + "/" if path.endswith("/") and not joined.endswith("/") else joined, safe=_SAFE)


def _overwrite(name: str, value: str) -> base_pb2.HeaderValueOption:
    action = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=name, value=value), append_action=action)
