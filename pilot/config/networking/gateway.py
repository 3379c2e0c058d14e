"""networking.istio.io Gateway. https://istio.io/latest/docs/reference/config/networking/gateway/"""

from __future__ import annotations

from typing import Literal

from pilot.config.base import Strict, UInt32

ServerTLSMode = Literal["PASSTHROUGH", "SIMPLE", "MUTUAL", "AUTO_PASSTHROUGH", "ISTIO_MUTUAL", "OPTIONAL_MUTUAL"]
TLSProtocol = Literal["TLS_AUTO", "TLSV1_0", "TLSV1_1", "TLSV1_2", "TLSV1_3"]


class Gateway(Strict, frozen=True):
    """A load balancer at the edge of the mesh. It runs on the workloads, in any namespace, that `selector` selects."""

    servers: tuple[Server, ...] = ()
    selector: dict[str, str] = {}


class Server(Strict, frozen=True):
    """A port of a gateway.

    Hosts are "[namespace/]name". The namespace "." is that of the Gateway, and "*" is any namespace.
    """

    port: Port | None = None
    bind: str = ""
    hosts: tuple[str, ...] = ()
    tls: ServerTLSSettings | None = None
    default_endpoint: str = ""
    name: str = ""


class Port(Strict, frozen=True):
    number: UInt32 = 0
    protocol: str = ""
    name: str = ""
    target_port: UInt32 = 0  # deprecated


class TLSCertificate(Strict, frozen=True):
    server_certificate: str = ""
    private_key: str = ""
    ca_certificates: str = ""


class ServerTLSSettings(Strict, frozen=True):
    """TLS settings of a server. The server terminates TLS, or passes it through (PASSTHROUGH and AUTO_PASSTHROUGH)."""

    https_redirect: bool = False
    mode: ServerTLSMode = "PASSTHROUGH"
    server_certificate: str = ""
    private_key: str = ""
    ca_certificates: str = ""
    ca_crl: str = ""
    credential_name: str = ""
    credential_names: tuple[str, ...] = ()
    ca_cert_credential_name: str = ""
    tls_certificates: tuple[TLSCertificate, ...] = ()
    subject_alt_names: tuple[str, ...] = ()
    verify_certificate_spki: tuple[str, ...] = ()
    verify_certificate_hash: tuple[str, ...] = ()
    min_protocol_version: TLSProtocol = "TLS_AUTO"
    max_protocol_version: TLSProtocol = "TLS_AUTO"
    cipher_suites: tuple[str, ...] = ()
    ecdh_curves: tuple[str, ...] = ()
    insecure_skip_verify: bool | None = None
