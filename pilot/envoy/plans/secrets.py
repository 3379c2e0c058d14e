"""Chooses the secrets that a proxy may have: those that it names and may read, whatever kind of proxy it is."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.envoy.plans.plan import NamedGroup
from pilot.envoy.secret import secrets
from pilot.lib.xds_types import SECRET
from pilot.mesh.security.credential_access import credential_reader_facet
from pilot.mesh.tables.database import Mesh


def secret_groups(db: Mesh, node_id: str) -> Mapping[str, tuple[NamedGroup, ...]]:
    """Returns the group of a proxy's secrets; none while it is not known yet what it may read, so that it waits. No node of its own."""
    reader = credential_reader_facet(db, node_id)
    return {SECRET: (NamedGroup(secrets, (reader,)),)} if reader is not None else {}
