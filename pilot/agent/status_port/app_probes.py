"""The application's probes, which the kubelet asks the agent for because mutual TLS would keep it from the application.

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
LARGEST_BODY = 10 * 1024
"""Bytes of the application's answer that are passed on, as many as the kubelet reads."""
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
LONGEST_SERVICE = 127
_SERVING = b"\x08\x01"
"""A HealthCheckResponse of the status SERVING."""


class Probe(NamedTuple):
    """How the application is asked. `kind` is http, https, tcp or grpc; `service` is that of a gRPC health check."""

    kind: str
    port: int
    path: str = "/"
    host: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    service: str = ""
    seconds: float = 1.0


class ProbeResponse(NamedTuple):
    """What the kubelet is told."""

    status: int
    body: bytes = b""


def parse_probes(text: str) -> dict[str, Probe]:
    """Returns the probes by path, none for no text. ValueError, which names the path, for one that cannot be used."""
    if not text:
        return {}
    try:
        said = json.loads(text)
    except ValueError as error:
        raise ValueError(f"variable ISTIO_KUBE_APP_PROBERS is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError("variable ISTIO_KUBE_APP_PROBERS is not an object")
    return {path: _parse(path, one) for path, one in said.items()}


def _parse(path: str, said: Any) -> Probe:
    where = f"variable ISTIO_KUBE_APP_PROBERS: {path}"
    if not PATH.fullmatch(path):
        raise ValueError(f"{where}: no such path: it is /app-health/CONTAINER/livez, readyz or startupz")
    kinds = [kind for kind in ("httpGet", "tcpSocket", "grpc") if isinstance(said, dict) and said.get(kind)]
    if len(kinds) != 1:
        raise ValueError(f"{where}: there must be one of httpGet, tcpSocket and grpc")
    spec, seconds = said[kinds[0]], said.get("timeoutSeconds") or 1
    port = spec.get("port")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise ValueError(f"{where}.{kinds[0]}.port: {port!r} is not a port's number")
    if kinds[0] == "tcpSocket":
        return Probe("tcp", port, seconds=seconds)
    if kinds[0] == "grpc":
        service = spec.get("service") or ""
        if len(service.encode()) > LONGEST_SERVICE:
            raise ValueError(f"{where}.grpc.service: it is longer than {LONGEST_SERVICE} bytes")
        return Probe("grpc", port, service=service, seconds=seconds)
    scheme = (spec.get("scheme") or "HTTP").lower()
    if scheme not in ("http", "https"):
        raise ValueError(f"{where}.httpGet.scheme: {spec['scheme']!r} is neither HTTP nor HTTPS")
    asked = spec.get("path") or "/"
    headers = tuple((h["name"], h["value"]) for h in spec.get("httpHeaders") or ())
    return Probe(scheme, port, asked if asked.startswith("/") else f"/{asked}", headers=headers, seconds=seconds)


class Prober:
    """Asks the application at the pod's address, from a source address that redirections of traffic leave alone."""

    def __init__(self, probes: Mapping[str, Probe], address: str, status_port: int) -> None:
        self._probes, self._address, self._status_port = probes, address, status_port
        self._source = ("::6", 0) if ":" in address else ("127.0.0.6", 0)

    def answer(self, path: str, headers: Mapping[str, str]) -> ProbeResponse:
        """Returns what the application says to the probe of a path; 404 where there is none."""
        probe = self._probes.get(path)
        if probe is None:
            return ProbeResponse(404, b"no such probe\n")
        try:
            if probe.kind == "tcp":
                self._connect(probe).close()
                return ProbeResponse(200)
            return self._grpc(probe) if probe.kind == "grpc" else self._http(probe, headers)
        except (OSError, http.client.HTTPException, grpc.RpcError) as error:
            return ProbeResponse(500, f"the application does not answer: {error}\n".encode()[:LARGEST_BODY])

    def _connect(self, probe: Probe) -> socket.socket:
        return socket.create_connection((self._address, probe.port), probe.seconds, source_address=self._source_for())

    def _source_for(self) -> tuple[str, int] | None:
        """Returns the source address where this machine has it; the loopback of IPv6 has one address alone unless more are configured."""
        if self._source[0] == "127.0.0.6":
            return self._source
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
            probe.bind(self._source)
            return self._source
        return None

    def _http(self, probe: Probe, headers: Mapping[str, str]) -> ProbeResponse:
        connection = http.client.HTTPConnection(self._address, probe.port, timeout=probe.seconds)
        connection.sock = self._connect(probe)
        try:
            if probe.kind == "https":
                connection.sock = _unverified().wrap_socket(connection.sock)
            connection.putrequest("GET", probe.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self._headers(probe, headers).items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            body = response.read(LARGEST_BODY)
        finally:
            connection.close()
        # The kubelet would follow a redirection to an address that the agent does not know; to a probe it is a good answer.
        return ProbeResponse(200) if 300 <= response.status < 400 else ProbeResponse(response.status, body)

    def _headers(self, probe: Probe, asked: Mapping[str, str]) -> dict[str, str]:
        """Returns the kubelet's headers, and over them those of the probe; the host names the application's port and not the agent's."""
        found = {name.lower(): value for name, value in asked.items() if name.lower() not in HOP_BY_HOP}
        host = (
            next((value for name, value in asked.items() if name.lower() == "host"), "")
            or f"{self._address}:{probe.port}"
        )
        if host.endswith(f":{self._status_port}"):
            host = f"{host.rpartition(':')[0]}:{probe.port}"
        return {"host": host, **found, **{name.lower(): value for name, value in probe.headers}, "connection": "close"}

    def _grpc(self, probe: Probe) -> ProbeResponse:
        target = f"[{self._address}]:{probe.port}" if ":" in self._address else f"{self._address}:{probe.port}"
        service = probe.service.encode()
        request = (
            b"\x0a" + bytes([len(service)]) + service if service else b""
        )  # HealthCheckRequest: field 1 is the name
        channel: Any = grpc.insecure_channel(target, (("grpc.use_local_subchannel_pool", 1),))
        with channel:
            said: bytes = channel.unary_unary(HEALTH_CHECK)(
                request, timeout=probe.seconds, metadata=(("user-agent", "kube-probe/istio"),)
            )
        return ProbeResponse(200) if said == _SERVING else ProbeResponse(500, b"the application is not serving\n")


def _unverified() -> ssl.SSLContext:
    """Returns what the kubelet probes HTTPS with: any certificate is taken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
