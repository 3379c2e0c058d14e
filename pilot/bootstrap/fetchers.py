"""Builds the parts that fetch external data: issuers' key sets, and the addresses of gateways."""

from __future__ import annotations

import ssl

from pilot.ingest.batch import Batch
from pilot.ingest.host_names.gateway_names import GatewayNames
from pilot.ingest.host_names.lookup import NameServers, read_name_servers
from pilot.ingest.jwks.client import JwksClient, make_tls
from pilot.ingest.jwks.key_sets import KeySets
from pilot.ingest.jwks.store import KeyStore
from pilot.ingest.problems import ProblemStore
from pilot.lib.address_rules import AddressRules
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.mesh.tables.database import Mesh
from pilot.settings import Settings

LOOKUP_TIMEOUT = 5.0


def make_key_sets(settings: Settings, db: Mesh, batch: Batch, problems: ProblemStore, metrics: Metrics) -> KeySets:
    """Return the part that fetches issuers' key sets. Raise StartError if a setting is invalid."""
    jwks, largest = settings.jwks, settings.mesh.policies.largest_key_sets
    try:
        client = JwksClient(
            AddressRules(jwks.allowed, jwks.blocked), make_tls(jwks.extra_roots, jwks.insecure), largest
        )
    except ValueError as error:
        raise StartError(
            f"PILOT_ALLOWED_CIDRS_IN_JWKS_URIS or BLOCKED_CIDRS_IN_JWKS_URIS: {error}; write CIDRs such as 10.0.0.0/8, "
            "separated by commas"
        ) from error
    except (ssl.SSLError, OSError) as error:
        raise StartError(f"cannot read {jwks.extra_roots}: {error}") from error
    return KeySets(db, batch, client, KeyStore(settings.ingest.state_dir), problems, metrics, jwks.refresh, largest)


def make_gateway_names(settings: Settings, db: Mesh, batch: Batch, problems: ProblemStore) -> GatewayNames | None:
    """Return the part that resolves the host names of gateways between networks, or None if it is disabled."""
    if not settings.ingest.resolve_gateways:
        return None
    return GatewayNames(db, batch, NameServers(read_name_servers(), LOOKUP_TIMEOUT), problems)
