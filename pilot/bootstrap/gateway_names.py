"""Makes the part that looks up the host names of gateways between networks."""

from __future__ import annotations

from pilot.ingest.batch import Batch
from pilot.ingest.host_names.follower import GatewayNames
from pilot.ingest.host_names.lookup import NameServers, read_name_servers
from pilot.ingest.problems import ProblemStore
from pilot.mesh.tables.database import Mesh
from pilot.settings import Settings

SECONDS = 5.0


def make_gateway_names(settings: Settings, db: Mesh, batch: Batch, problems: ProblemStore) -> GatewayNames | None:
    """Returns the part; None where the settings say that host names stay names."""
    if not settings.ingest.resolve_gateways:
        return None
    return GatewayNames(db, batch, NameServers(read_name_servers(), SECONDS), problems)
