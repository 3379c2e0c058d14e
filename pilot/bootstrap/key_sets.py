"""Makes the part that fetches the key sets of issuers."""

from __future__ import annotations

import ssl

from pilot.ingest.batch import Batch
from pilot.ingest.jwks.client import JwksClient, make_tls
from pilot.ingest.jwks.follower import KeySets
from pilot.ingest.jwks.store import KeyStore
from pilot.ingest.problems import ProblemStore
from pilot.lib.address_rules import AddressRules
from pilot.lib.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.mesh.tables.database import Mesh
from pilot.settings import Settings


def make_key_sets(settings: Settings, db: Mesh, batch: Batch, problems: ProblemStore, metrics: Metrics) -> KeySets:
    """Returns the part. StartError where a setting of it is wrong."""
    said = settings.jwks
    try:
        client = JwksClient(
            AddressRules(said.allowed, said.blocked), make_tls(said.extra_roots, said.insecure), said.largest
        )
    except ValueError as error:
        raise StartError(f"PILOT_ALLOWED_CIDRS_IN_JWKS_URIS, BLOCKED_CIDRS_IN_JWKS_URIS: {error}") from error
    except (ssl.SSLError, OSError) as error:
        raise StartError(f"cannot read {said.extra_roots}: {error}") from error
    return KeySets(db, batch, client, KeyStore(settings.ingest.state_dir), problems, metrics, said.refresh)
