"""Chooses the configuration of extensions that a proxy may ask for, whatever kind of proxy it is."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.lib.xds_types import EXTENSION
from pilot.model.inputs import Mesh
from pilot.model.views.pull_secrets import extension_reader_facet
from pilot.translate.extension_discovery import discovered_extensions
from pilot.translate.profile.plan import NamedGroup


def extension_groups(db: Mesh, node_id: str) -> Mapping[str, tuple[NamedGroup, ...]]:
    """Returns the group of a proxy's extensions. No node of its own."""
    return {EXTENSION: (NamedGroup(discovered_extensions, (extension_reader_facet(db, node_id),)),)}
