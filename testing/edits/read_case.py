"""Test cases for reads: a mesh and edits that only affect a result through one read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.ingest.decode import OWN
from pilot.ingest.mesh_config import decode_mesh_config
from testing.edits.mesh_edits import FLAGS, Rows, rows_at
from testing.edits.mesh_slots import SLOTS
from testing.edits.untracked_reads import Site, Survey
from testing.mesh.objects import Plain
from testing.mesh.world import rows_of

VIEWS = "pilot/mesh"
NUMBERS = {slot.name: number for number, slot in enumerate(SLOTS)}


class ReadCase(NamedTuple):
    """A mesh and a sequence of edits, at least one of which takes effect only through a read ("file function read")."""

    read: str
    mesh: Rows
    edits: Sequence[Rows]

    def results(self) -> dict[Site, bool]:
        """Return for each site of the read whether a missing dependency would be detected."""
        survey = Survey()
        survey.record(enumerate((self.mesh, *self.edits)), FLAGS)
        return {site: survey.detects(site) for site in survey.sites if site.name == self.read}


def object_rows(*objects: Plain, cluster: str = OWN.cluster) -> Rows:
    """Return the rows of objects."""
    return rows_of(objects, cluster)


def slot_rows(*names: str, variant: int = 0) -> dict[tuple[str, Any], Any]:
    """Return the rows of slots, each with one of its variants."""
    return {key: row for name in names for key, row in rows_at(NUMBERS[name], variant).items()}


def mesh(*parts: Rows, config: str = "{}") -> dict[tuple[str, Any], Any]:
    """Return the rows of a mesh with a mesh config in YAML."""
    decoded, problems = decode_mesh_config([yaml.safe_load(config)])
    assert decoded is not None, problems
    settings = {("MeshConfig", "mesh"): decoded, ("MeshConfig", "networks"): MeshNetworks()}
    return {key: row for part in (settings, *parts) for key, row in part.items()}
