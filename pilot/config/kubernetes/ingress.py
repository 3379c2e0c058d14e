"""Kubernetes Ingress and IngressClass. https://kubernetes.io/docs/concepts/services-networking/ingress/"""

from __future__ import annotations

from pilot.config.base import Int32, Lenient


class ServiceBackendPort(Lenient, frozen=True):
    """A reference to a port of a Service by name or number."""

    name: str = ""
    number: Int32 = 0


class IngressServiceBackend(Lenient, frozen=True):
    name: str = ""
    port: ServiceBackendPort = ServiceBackendPort()


class IngressBackend(Lenient, frozen=True):
    service: IngressServiceBackend | None = None


class HTTPIngressPath(Lenient, frozen=True):
    path: str = ""
    path_type: str | None = None
    backend: IngressBackend = IngressBackend()


class HTTPIngressRule(Lenient, frozen=True):
    paths: tuple[HTTPIngressPath, ...] = ()


class IngressRule(Lenient, frozen=True):
    host: str = ""
    http: HTTPIngressRule | None = None


class IngressTLS(Lenient, frozen=True):
    hosts: tuple[str, ...] = ()
    secret_name: str = ""


class Ingress(Lenient, frozen=True):
    """Routes requests that arrive at the ingress gateway to Services, based on the host."""

    ingress_class_name: str | None = None
    default_backend: IngressBackend | None = None
    tls: tuple[IngressTLS, ...] = ()
    rules: tuple[IngressRule, ...] = ()


class IngressClass(Lenient, frozen=True):
    """Specifies which controller implements the Ingresses of a class."""

    controller: str = ""
