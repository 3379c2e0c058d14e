"""Probes of the application, sent on behalf of the kubelet.

With mutual TLS, the kubelet cannot reach the application itself, so the injector redirects its probes to the agent.

https://istio.io/latest/docs/ops/configuration/mesh/app-health-check/
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc

PATH = re.compile(r"/app-(health|lifecycle)/[^/]+/(livez|readyz|startupz|prestopz|poststartz)")
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "host",
    }
)
MAX_BODY_BYTES = 10 * 1024
"""Maximum number of bytes to forward of the application's response. The kubelet reads no more."""
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
MAX_SERVICE_BYTES = 127
_SERVING = b"\x08\x01"
"""A serialized HealthCheckResponse with the status SERVING."""


class Probe(NamedTuple):
    """A probe of the application. `kind` is http, https, tcp or grpc. `service` is the gRPC service to check."""

    kind: str
    port: int
    path: str = "/"
    host: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    service: str = ""
    timeout: float = 1.0


class ProbeResponse(NamedTuple):
    """The HTTP response for the kubelet."""

    status: int
    body: bytes = b""


def parse_probes(text: str) -> dict[str, Probe]:
    """Return the probes, keyed by path. Raises ValueError with the path if a probe is invalid."""
    if not text:
        return {}
    try:
        probes = json.loads(text)
    except ValueError as error:
        raise ValueError(f"variable ISTIO_KUBE_APP_PROBERS is not JSON: {error}") from error
    if not isinstance(probes, dict):
        raise ValueError("variable ISTIO_KUBE_APP_PROBERS is not an object")
    return {path: _parse_probe(path, probe) for path, probe in probes.items()}


def _parse_probe(path: str, probe: Any) -> Probe:
    location = f"variable ISTIO_KUBE_APP_PROBERS: {path}"
    if not PATH.fullmatch(path):
        raise ValueError(f"{location}: invalid path; expected /app-health/CONTAINER/livez, readyz or startupz")
    handlers = [name for name in ("httpGet", "tcpSocket", "grpc") if isinstance(probe, dict) and probe.get(name)]
    if len(handlers) != 1:
        raise ValueError(f"{location}: expected exactly one of httpGet, tcpSocket and grpc")
    spec, timeout = probe[handlers[0]], probe.get("timeoutSeconds") or 1
    port = spec.get("port")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise ValueError(f"{location}.{handlers[0]}.port: {port!r} is not a port number")
    if handlers[0] == "tcpSocket":
        return Probe("tcp", port, timeout=timeout)
    if handlers[0] == "grpc":
        service = spec.get("service") or ""
        if len(service.encode()) > MAX_SERVICE_BYTES:
            raise ValueError(f"{location}.grpc.service: must be at most {MAX_SERVICE_BYTES} bytes")
        return Probe("grpc", port, service=service, timeout=timeout)
    scheme = (spec.get("scheme") or "HTTP").lower()
    if scheme not in ("http", "https"):
        raise ValueError(f"{location}.httpGet.scheme: {spec['scheme']!r} is neither HTTP nor HTTPS")
    http_path = spec.get("path") or "/"
    headers = tuple((header["name"], header["value"]) for header in spec.get("httpHeaders") or ())
    return Probe(
        scheme, port, http_path if http_path.startswith("/") else f"/{http_path}", headers=headers, timeout=timeout
    )


class Prober:
    """Probes the application at the pod's address. The source address is one that is excluded from traffic capture."""

    def __init__(self, probes: Mapping[str, Probe], address: str, status_port: int) -> None:
        self._probes, self._address, self._status_port = probes, address, status_port
        self._source = ("::6", 0) if ":" in address else ("127.0.0.6", 0)

    def probe(self, path: str, headers: Mapping[str, str]) -> ProbeResponse:
        """Return the application's response to the probe with a path, or a 404 if there is no such probe."""
        probe = self._probes.get(path)
        if probe is None:
            return ProbeResponse(404, b"no such probe\n")
        try:
            if probe.kind == "tcp":
                self._connect(probe).close()
                return ProbeResponse(200)
            return self._probe_grpc(probe) if probe.kind == "grpc" else self._probe_http(probe, headers)
        except (OSError, http.client.HTTPException, grpc.RpcError) as error:
            return ProbeResponse(500, f"the application does not respond: {error}\n".encode()[:MAX_BODY_BYTES])

    def _connect(self, probe: Probe) -> socket.socket:
        return socket.create_connection(
            (self._address, probe.port), probe.timeout, source_address=self._source_address()
        )

    def _source_address(self) -> tuple[str, int] | None:
        """Return the source address, or None if this machine lacks it.

        By default, the loopback interface has only one IPv6 address, ::1.
        """
        if self._source[0] == "127.0.0.6":
            return self._source
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as client:
            client.bind(self._source)
            return self._source
        return None

    def _probe_http(self, probe: Probe, headers: Mapping[str, str]) -> ProbeResponse:
        connection = http.client.HTTPConnection(self._address, probe.port, timeout=probe.timeout)
        connection.sock = self._connect(probe)
        try:
            if probe.kind == "https":
                connection.sock = _unverified_tls().wrap_socket(connection.sock)
            connection.putrequest("GET", probe.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self._headers(probe, headers).items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            body = response.read(MAX_BODY_BYTES)
        finally:
            connection.close()
        # A redirect is a success for a probe. Forwarded as it is, the kubelet would follow it to the wrong address.
        return ProbeResponse(200) if 300 <= response.status < 400 else ProbeResponse(response.status, body)

    def _headers(self, probe: Probe, kubelet_headers: Mapping[str, str]) -> dict[str, str]:
        """Return the kubelet's headers, overridden by the probe's.

        The port in the Host header is the application's, not the agent's.
        """
        headers = {name.lower(): value for name, value in kubelet_headers.items() if name.lower() not in HOP_BY_HOP}
        host = (
            next((value for name, value in kubelet_headers.items() if name.lower() == "host"), "")
            or f"{self._address}:{probe.port}"
        )
        if host.endswith(f":{self._status_port}"):
            host = f"{host.rpartition(':')[0]}:{probe.port}"
        probe_headers = {name.lower(): value for name, value in probe.headers}
        return {"host": host, **headers, **probe_headers, "connection": "close"}

    def _probe_grpc(self, probe: Probe) -> ProbeResponse:
        target = f"[{self._address}]:{probe.port}" if ":" in self._address else f"{self._address}:{probe.port}"
        service = probe.service.encode()
        # A HealthCheckRequest, whose field 1 is the service.
        request = b"\x0a" + bytes([len(service)]) + service if service else b""
        channel: Any = grpc.insecure_channel(target, (("grpc.use_local_subchannel_pool", 1),))
        with channel:
            response: bytes = channel.unary_unary(HEALTH_CHECK)(
                request, timeout=probe.timeout, metadata=(("user-agent", "kube-probe/istio"),)
            )
        return ProbeResponse(200) if response == _SERVING else ProbeResponse(500, b"the application is not serving\n")


def _unverified_tls() -> ssl.SSLContext:
    """Return a TLS context that accepts any certificate, as the kubelet does for HTTPS probes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
