"""Connections to the control plane and the certificate authority.

Certificates and tokens are read again for each connection, because they are rotated.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import grpc
from grpc import aio

from pilot.agent.agent_settings import ControlPlaneSettings
from pilot.agent.proxy.server_address import parse_address
from pilot.lib.pem_files import PemError, PemFile, check_pair, load_certificates

CONFIG_MAP_ROOT = "./var/run/secrets/istio/root-cert.pem"
MOUNTED_ROOT = "./etc/certs/root-cert.pem"
SYSTEM = "SYSTEM"
"""Value that selects the system's root certificates instead of a file."""
CLIENT_KEY, CLIENT_CHAIN, CLIENT_ROOT = "TLS_CLIENT_KEY", "TLS_CLIENT_CERT_CHAIN", "TLS_CLIENT_ROOT_CERT"
LOOPBACK_SERVER_NAME = "istiod.istio-system.svc"
"""Name expected in the control plane's certificate if its address is a loopback address, for example a forwarded port.
"""

_SECURE_PORT = "use the secure port of the control plane, 15012 by default"
_HINTS = {
    "WRONG_VERSION_NUMBER": f"the port does not speak TLS: {_SECURE_PORT}",
    "missing selected ALPN property": f"the port speaks TLS but not gRPC: {_SECURE_PORT}",
    "http1.x server": "the port accepts no gRPC without TLS: use the plaintext port, 15010 by default, or TLS",
    "CERTIFICATE_VERIFY_FAILED": "no root certificate in {root} signed the server's certificate: use the roots in the "
    "ConfigMap istio-ca-root-cert of the control plane",
    "Hostname Verification Check failed": "the server's certificate does not contain the name {server_name}; "
    "variable ISTIOD_SAN sets the name to expect",
    "authenticat": "the control plane's log says why it rejects the token in {token_file}",
}
"""Advice on failed calls, by a part of gRPC's details."""


class UpstreamConfigError(Exception):
    """A file that the connection needs is missing or unreadable. The message is for the user."""


class ClientCertificate(NamedTuple):
    """The files of a certificate that authenticates the client instead of a token."""

    key: str
    chain: str


class UpstreamServer(NamedTuple):
    """A server and the credentials to connect to it.

    `address` is host:port. `root` is the file with the root certificates, `SYSTEM` for the system's, or None for
    plaintext. Without a `client_certificate`, only a token authenticates the client.
    """

    address: str
    root: str | None
    server_name: str
    token_file: str
    cluster_id: str
    client_certificate: ClientCertificate | None
    headers: Mapping[str, str]

    def channel(self) -> Any:
        """Return a new asyncio channel that uses the current certificates. Raises UpstreamConfigError."""
        return self._open(aio)

    def blocking_channel(self) -> Any:
        """Return a new blocking channel that uses the current certificates. Raises UpstreamConfigError."""
        return self._open(grpc)

    def _open(self, library: Any) -> Any:
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if self.root is None:
            return library.insecure_channel(self.address, options)
        roots = None if self.root == SYSTEM else _read_roots(self.root)
        key, chain = self._read_client_certificate()
        credentials = grpc.ssl_channel_credentials(roots, key, chain)
        return library.secure_channel(
            self.address, credentials, [*options, ("grpc.ssl_target_name_override", self.server_name)]
        )

    def metadata(self) -> Sequence[tuple[str, str]]:
        """Return the headers of a call: the cluster ID, the user's headers, and the token if there is one.

        Raises UpstreamConfigError if there is neither a token nor a client certificate.
        """
        metadata = [("clusterid", self.cluster_id), *((name.lower(), value) for name, value in self.headers.items())]
        if self.root is None:  # never send a token in plaintext
            return metadata
        try:
            token = pathlib.Path(self.token_file).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            token = ""
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a token, which is ASCII text"
            raise UpstreamConfigError(
                f"ISTIO_TOKEN_FILE: cannot read the token file {self.token_file}: {reason}"
            ) from error
        if not token and self.client_certificate is None:
            raise UpstreamConfigError(
                f"no token in {self.token_file} and no client certificate; ISTIO_TOKEN_FILE names the file of the token"
            )
        return [*metadata, ("authorization", f"Bearer {token}")] if token else metadata

    def explain(self, details: str | None) -> str:
        """Return the details of a failed call, followed by the fix if the cause is known."""
        hints = (hint for pattern, hint in _HINTS.items() if pattern in (details or ""))
        return "; ".join((details or "", *(hint.format_map(self._asdict()) for hint in hints)))

    def _read_client_certificate(self) -> tuple[bytes | None, bytes | None]:
        """Return the client's private key and certificate chain. Both are None while the key file does not exist."""
        if self.client_certificate is None or not pathlib.Path(self.client_certificate.key).exists():
            return None, None
        key_file, chain_file = self.client_certificate
        key, chain = _read(key_file, "client private key"), _read(chain_file, "client certificate")
        try:
            check_pair(PemFile(chain_file, chain), PemFile(key_file, key))
        except PemError as error:
            raise UpstreamConfigError(f"cannot use the client certificate: {error}") from error
        return key, chain


def xds_upstream(
    settings: ControlPlaneSettings,
    discovery_address: str,
    plaintext: bool,
    headers: Mapping[str, str],
    metadata: Mapping[str, str] | None = None,
) -> UpstreamServer:
    """Return the xDS server.

    `metadata` is the node's metadata if the workload's certificate comes from mounted files. It may contain the path of
    a client certificate. Raises ValueError if an address is invalid.
    """
    certificate, root = None, settings.xds_root
    if metadata and (metadata.get(CLIENT_KEY) and metadata.get(CLIENT_CHAIN)):
        certificate = ClientCertificate(metadata[CLIENT_KEY], metadata[CLIENT_CHAIN])
        root = root or metadata.get(CLIENT_ROOT, "")
    root_file = _root_file(settings, root, MOUNTED_ROOT)
    return _upstream(
        settings,
        "ProxyConfig.discoveryAddress",
        discovery_address,
        None if plaintext else root_file,
        headers,
        certificate,
    )


def ca_upstream(settings: ControlPlaneSettings, discovery_address: str, headers: Mapping[str, str]) -> UpstreamServer:
    """Return the certificate authority. Raises ValueError for an invalid address."""
    mounted_root = MOUNTED_ROOT if settings.cert_provider == "custom" else ""
    source = "variable CA_ADDR" if settings.ca_address else "ProxyConfig.discoveryAddress"
    return _upstream(
        settings,
        source,
        settings.ca_address or discovery_address,
        _root_file(settings, settings.ca_root, mounted_root),
        headers,
        None,
    )


def _upstream(
    settings: ControlPlaneSettings,
    source: str,
    address: str,
    root: str | None,
    headers: Mapping[str, str],
    certificate: ClientCertificate | None,
) -> UpstreamServer:
    host, _ = parse_address(source, address)
    is_local = host == "localhost" or host == "::1" or host.startswith("127.")
    server_name = settings.server_name or (LOOPBACK_SERVER_NAME if is_local else host)
    directory = settings.provisioned_directory
    provisioned = ClientCertificate(f"{directory}/key.pem", f"{directory}/cert-chain.pem") if directory else None
    return UpstreamServer(
        address, root, server_name, settings.token_file, settings.cluster_id, certificate or provisioned, headers
    )


def _root_file(settings: ControlPlaneSettings, configured: str, mounted: str) -> str:
    """Return the file with the root certificates.

    It is the configured file, or else the first of these that is available: the mounted file, the one in the directory
    PROV_CERT, and the one from the mesh's ConfigMap.
    """
    if configured:
        return configured
    if mounted and pathlib.Path(mounted).exists():
        return mounted
    if settings.provisioned_directory:
        return f"{settings.provisioned_directory}/root-cert.pem"
    return CONFIG_MAP_ROOT


def _read_roots(path: str) -> bytes:
    roots = _read(path, "root certificates", "; XDS_ROOT_CA and CA_ROOT_CA name another file")
    try:
        load_certificates(PemFile(path, roots))  # gRPC would report only that a handshake failed
    except PemError as error:
        raise UpstreamConfigError(f"cannot use the root certificates: {error}") from error
    return roots


def _read(path: str, description: str, hint: str = "") -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UpstreamConfigError(f"cannot read the {description} {path}: {error.strerror}{hint}") from error
