"""Settings that say several things at once, taken apart before anything starts."""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pilot.lib.flags import FlagError
from pilot.lib.start_error import StartError
from pilot.serve.address import Address, parse_address
from pilot.settings import Settings
from pilot.settings.process import IngestSettings


class Addresses(NamedTuple):
    """Says where to listen; an address is None where nothing is to listen."""

    http: Address | None
    grpc: Address | None
    monitoring: Address | None
    secure: Address | None
    webhooks: Address | None


def parse_addresses(settings: Settings) -> Addresses:
    """Returns the addresses of all ports. FlagError where one is no address."""
    return Addresses(
        parse_address(settings.process.http_address, "httpAddr"),
        parse_address(settings.serve.grpc_address, "grpcAddr"),
        parse_address(settings.process.monitoring_address, "monitoringAddr"),
        parse_address(settings.secure_port.address, "secureGRPCAddr"),
        parse_address(settings.webhook.address, "httpsAddr"),
    )


def parse_aliases(pairs: Iterable[str]) -> dict[str, str]:
    """Returns the cluster of each alias. FlagError where one is not alias=cluster, or a cluster has two."""
    aliases: dict[str, str] = {}
    for pair in pairs:
        alias, equals, cluster = pair.partition("=")
        if not (alias and equals and cluster):
            raise FlagError(f"invalid argument for --clusterAliases: {pair!r} is not alias=cluster")
        if cluster in aliases.values():
            raise FlagError(f"invalid argument for --clusterAliases: cluster {cluster!r} has more than one alias")
        aliases[alias] = cluster
    return aliases


def check_sources(settings: IngestSettings) -> None:
    """Raises StartError where the settings name no source of configuration that there is."""
    if settings.registries != ("Kubernetes",):
        raise StartError(f"--registries: {','.join(settings.registries)!r} is not known, only Kubernetes is")
