"""networking.istio.io WorkloadGroup. https://istio.io/latest/docs/reference/config/networking/workload-group/"""

from __future__ import annotations

from typing import ClassVar

from pilot.config.base import Int32, OneOf, Strict, UInt32
from pilot.config.networking.workload_entry import WorkloadEntry


class ObjectMeta(Strict, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class WorkloadGroup(Strict, frozen=True):
    """A template for WorkloadEntries that are registered automatically."""

    metadata: ObjectMeta | None = None
    template: WorkloadEntry | None = None
    probe: ReadinessProbe | None = None


class ReadinessProbe(OneOf, frozen=True):
    groups: ClassVar = (("http_get", "tcp_socket", "exec", "grpc"),)

    initial_delay_seconds: Int32 = 0
    timeout_seconds: Int32 = 0
    period_seconds: Int32 = 0
    success_threshold: Int32 = 0
    failure_threshold: Int32 = 0
    http_get: HTTPHealthCheckConfig | None = None
    tcp_socket: TCPHealthCheckConfig | None = None
    exec: ExecHealthCheckConfig | None = None
    grpc: GrpcHealthCheckConfig | None = None


class HTTPHealthCheckConfig(Strict, frozen=True):
    path: str = ""
    port: UInt32 = 0
    host: str = ""
    scheme: str = ""
    http_headers: tuple[HTTPHeader, ...] = ()


class GrpcHealthCheckConfig(Strict, frozen=True):
    port: UInt32 = 0
    service: str = ""


class HTTPHeader(Strict, frozen=True):
    name: str = ""
    value: str = ""


class TCPHealthCheckConfig(Strict, frozen=True):
    host: str = ""
    port: UInt32 = 0


class ExecHealthCheckConfig(Strict, frozen=True):
    command: tuple[str, ...] = ()
