"""Parses structured settings at startup, before any part starts."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable
from typing import NamedTuple

from pilot.config.validation.rules import is_dns_label
from pilot.lib.flags import FlagError
from pilot.lib.start_error import StartError
from pilot.lib.tokens.jwks import LARGEST_SET, JwksError, parse_jwks
from pilot.settings import Settings
from pilot.settings.mesh import RegistrySettings
from pilot.settings.process import DebugSettings, IngestSettings, ProcessSettings
from pilot.settings.security import AuthenticationSettings, SecurePortSettings
from pilot.xds.net.listen_address import Address, parse_address


class ListenAddresses(NamedTuple):
    """Addresses to listen on. A port whose address is None is disabled."""

    http: Address | None
    grpc: Address | None
    monitoring: Address | None
    secure: Address | None
    webhooks: Address | None
    controlz: Address | None


def parse_addresses(settings: Settings) -> ListenAddresses:
    """Return the addresses of all ports. Raise FlagError if one is invalid, or two ports have the same address."""
    addresses = ListenAddresses(
        parse_address(settings.process.http_address, "httpAddr"),
        parse_address(settings.serve.grpc_address, "grpcAddr"),
        parse_address(settings.process.monitoring_address, "monitoringAddr"),
        parse_address(settings.secure_port.address, "secureGRPCAddr"),
        parse_address(settings.webhook.address, "httpsAddr"),
        controlz_address(settings.process),
    )
    for one, other in itertools.combinations(filter(None, addresses), 2):
        if one.overlaps(other):
            is_http = {one, other} == {addresses.http, addresses.monitoring}
            hint = "; an empty --monitoringAddr= serves the pages of both" if is_http else ""
            raise FlagError(f"--{one.flag} and --{other.flag} have the same port {one.port}: change one of them{hint}")
    return addresses


def controlz_address(settings: ProcessSettings) -> Address | None:
    """Return the address of ControlZ, or None if it is disabled. Raise FlagError if the port is invalid."""
    if not 0 <= settings.controlz_port <= 65535:
        raise FlagError(f"invalid argument for --ctrlz_port: {settings.controlz_port} is not a port")
    host = {"*": "", "localhost": "127.0.0.1"}.get(settings.controlz_address, settings.controlz_address)
    return Address(host, settings.controlz_port, "ctrlz_port") if settings.controlz_port else None


def parse_aliases(pairs: Iterable[str]) -> dict[str, str]:
    """Return a mapping from aliases to clusters.

    Raise FlagError if an entry is not alias=cluster, or if a cluster has two aliases.
    """
    aliases: dict[str, str] = {}
    for pair in pairs:
        alias, equals, cluster = pair.partition("=")
        if not (alias and equals and cluster):
            raise FlagError(f"invalid argument for --clusterAliases: {pair!r} is not alias=cluster")
        if cluster in aliases.values():
            raise FlagError(f"invalid argument for --clusterAliases: cluster {cluster!r} has more than one alias")
        aliases[alias] = cluster
    return aliases


def check_security(secure_port: SecurePortSettings, authentication: AuthenticationSettings) -> None:
    """Raise FlagError if the secure port has only a part of a certificate, or StartError if there are no token keys."""
    pair = {"tlsCertFile": secure_port.certificate_file, "tlsKeyFile": secure_port.key_file}
    used = [flag for flag, file in pair.items() if file]
    missing = [flag for flag, file in {**pair, "caCertFile": secure_port.roots_file}.items() if not file]
    if used and missing:
        raise FlagError(f"--{used[0]} requires --{' and --'.join(missing)}")
    if authentication.token_keys:
        try:
            with open(authentication.token_keys, "rb") as file:
                parse_jwks(file.read(LARGEST_SET + 1))
        except (OSError, JwksError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            hint = "" if isinstance(error, OSError) else "; the file must contain a JSON Web Key Set (JWKS)"
            raise StartError(f"--tokenKeys: cannot use {authentication.token_keys}: {reason}{hint}") from error


def check_names(registry: RegistrySettings, debug: DebugSettings) -> None:
    """Raise FlagError if a name or URL in the settings is malformed."""
    if not is_dns_label(registry.namespace) or registry.namespace != registry.namespace.lower():
        raise FlagError(
            f"invalid argument for --namespace or POD_NAMESPACE: {registry.namespace!r} is not the name of a namespace"
        )
    if not all(map(is_dns_label, registry.domain.split("."))):
        raise FlagError(f"invalid argument for --domain: {registry.domain!r} is not a DNS name such as cluster.local")
    if debug.prometheus and not debug.prometheus.startswith(("http://", "https://")):
        raise FlagError(
            f"invalid argument for --prometheusURL: {debug.prometheus!r} is not a URL; did you mean http://{debug.prometheus}?"
        )


def check_sources(settings: IngestSettings) -> None:
    """Raise StartError if the settings name an unknown registry, or if the state directory is not writable."""
    if settings.registries != ("Kubernetes",):
        raise StartError(f"--registries: unknown registry {','.join(settings.registries)!r}, expected Kubernetes")
    if settings.state_dir:
        try:
            os.makedirs(settings.state_dir, exist_ok=True)
            tempfile.TemporaryFile(dir=settings.state_dir).close()
        except OSError as error:
            raise StartError(
                f"--stateDir or PILOT_STATE_DIR: cannot write to {settings.state_dir}: {error.strerror or error}; "
                "use a directory that this user may write to"
            ) from error
