"""The way to the control plane: address, TLS and the token, read again for each connection because they change."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import grpc
from grpc import aio

from pilot.agent.agent_settings import ControlPlaneSettings
from pilot.agent.envoy.envoy_bootstrap import parse_address

MOUNTED_ROOT = "./var/run/secrets/istio/root-cert.pem"
CERTIFICATE_ROOT = "./etc/certs/root-cert.pem"
SYSTEM = "SYSTEM"
CLIENT_KEY, CLIENT_CHAIN, CLIENT_ROOT = "TLS_CLIENT_KEY", "TLS_CLIENT_CERT_CHAIN", "TLS_CLIENT_ROOT_CERT"
LOOPBACK_NAME = "istiod.istio-system.svc"
"""The name in the control plane's certificate where it is reached on this machine, through a forwarded port for example."""


class UpstreamConfigError(Exception):
    """What a connection needs is not there; the text is for the user."""


class ClientCertificate(NamedTuple):
    """The files of a certificate that proves who the caller is, in place of a token."""

    key: str
    chain: str


class UpstreamServer(NamedTuple):
    """One server: `address` is host:port. `root` is the file of its roots, SYSTEM for those of the system, None for plain text. `pair` is
    None where the caller has a token alone."""

    address: str
    root: str | None
    server_name: str
    token: str
    cluster: str
    pair: ClientCertificate | None
    headers: Mapping[str, str]

    def channel(self) -> Any:
        """Returns a new channel for an event loop, with the certificates that are there now. Unreachable where one is missing."""
        return self._open(aio)

    def blocking_channel(self) -> Any:
        """Returns a new channel for threads, as `channel` does."""
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
        roots = None if self.root == SYSTEM else _read(self.root, "the roots of the control plane")
        key, chain = self._pair()
        credentials = grpc.ssl_channel_credentials(roots, key, chain)
        return library.secure_channel(
            self.address, credentials, [*options, ("grpc.ssl_target_name_override", self.server_name)]
        )

    def metadata(self) -> Sequence[tuple[str, str]]:
        """Returns the headers of a call: the token where there is one, the cluster, and what the user adds. Unreachable where there is
        neither a token nor a certificate in its place."""
        found = [("clusterid", self.cluster), *((name.lower(), value) for name, value in self.headers.items())]
        if self.root is None:  # a token is for nobody's eyes in plain text
            return found
        try:
            token = pathlib.Path(self.token).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            token = ""
        except (OSError, ValueError) as error:
            raise UpstreamConfigError(f"the token at {self.token} cannot be read: {error}") from error
        if not token and self.pair is None:
            raise UpstreamConfigError(f"there is no token at {self.token}, and no certificate in its place")
        return [*found, ("authorization", f"Bearer {token}")] if token else found

    def _pair(self) -> tuple[bytes | None, bytes | None]:
        """Returns the private key and chain that prove who the caller is; None where there are none, or none yet."""
        if self.pair is None or not pathlib.Path(self.pair.key).exists():
            return None, None
        return _read(self.pair.key, "the private key of the caller"), _read(
            self.pair.chain, "the certificate of the caller"
        )


def xds_upstream(
    settings: ControlPlaneSettings,
    discovery_address: str,
    plaintext: bool,
    headers: Mapping[str, str],
    mounted: Mapping[str, str] | None = None,
) -> UpstreamServer:
    """Returns where configuration comes from. `mounted` is the node's metadata where the proxy has files for a certificate, which name
    those that it shows. ValueError for an address that is none."""
    pair, root = None, settings.xds_root
    if mounted and (mounted.get(CLIENT_KEY) and mounted.get(CLIENT_CHAIN)):
        pair, root = ClientCertificate(mounted[CLIENT_KEY], mounted[CLIENT_CHAIN]), root or mounted.get(CLIENT_ROOT, "")
    found = _root(settings, root, CERTIFICATE_ROOT)
    return _upstream(
        settings, "ProxyConfig.discoveryAddress", discovery_address, None if plaintext else found, headers, pair
    )


def ca_upstream(settings: ControlPlaneSettings, discovery_address: str, headers: Mapping[str, str]) -> UpstreamServer:
    """Returns where certificates come from. ValueError for an address that is none."""
    custom = CERTIFICATE_ROOT if settings.cert_provider == "custom" else ""
    where = "variable CA_ADDR" if settings.authority else "ProxyConfig.discoveryAddress"
    return _upstream(
        settings,
        where,
        settings.authority or discovery_address,
        _root(settings, settings.authority_root, custom),
        headers,
        None,
    )


def _upstream(
    settings: ControlPlaneSettings,
    where: str,
    address: str,
    root: str | None,
    headers: Mapping[str, str],
    pair: ClientCertificate | None,
) -> UpstreamServer:
    host, _ = parse_address(where, address)
    local = host == "localhost" or host == "::1" or host.startswith("127.")
    name = settings.server_name or (LOOPBACK_NAME if local else host)
    provisioned = (
        ClientCertificate(f"{settings.provisioned}/key.pem", f"{settings.provisioned}/cert-chain.pem")
        if settings.provisioned
        else None
    )
    return UpstreamServer(address, root, name, settings.token, settings.cluster, pair or provisioned, headers)


def _root(settings: ControlPlaneSettings, given: str, mounted: str) -> str:
    """Returns the file of roots: the given one, a mounted one that is there, that of PROV_CERT, or that of the mesh's ConfigMap."""
    if given:
        return given
    if mounted and pathlib.Path(mounted).exists():
        return mounted
    if settings.provisioned:
        return f"{settings.provisioned}/root-cert.pem"
    return MOUNTED_ROOT


def _read(path: str, what: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UpstreamConfigError(f"{what} cannot be read: {path}: {error.strerror}") from error
