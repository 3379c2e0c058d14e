"""Chooses the configuration of extensions that a proxy may ask for, whatever kind of proxy it is."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.envoy.extension_config import discovered_extensions
from pilot.envoy.plans.plan import NamedGroup
from pilot.lib.xds_types import EXTENSION
from pilot.mesh.security.pull_secrets import extension_reader_facet
from pilot.mesh.tables.database import Mesh


def extension_groups(db: Mesh, node_id: str) -> Mapping[str, tuple[NamedGroup, ...]]:
    """Returns the group of a proxy's extensions. No node of its own."""
    return {EXTENSION: (NamedGroup(discovered_extensions, (extension_reader_facet(db, node_id),)),)}
