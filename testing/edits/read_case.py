"""What a case for a read is: a mesh that is made for it, and edits that need the read to be told of."""

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
    """A mesh, and edits one after another, of which some is told by this read alone ("file function read")."""

    read: str
    mesh: Rows
    edits: Sequence[Rows]

    def tried(self) -> dict[Site, bool]:
        """Return whether each site of the read is noticed, by proxies or in what users are told."""
        survey = Survey()
        survey.follow(enumerate((self.mesh, *self.edits)), FLAGS)
        return {site: survey.noticed(site) for site in survey.sites if site.name == self.read}


def of(*objects: Plain, cluster: str = OWN.cluster) -> Rows:
    """Return the rows of objects."""
    return rows_of(objects, cluster)


def held(*names: str) -> dict[tuple[str, Any], Any]:
    """Return the rows of slots, each at its first variant."""
    return {key: row for name in names for key, row in rows_at(NUMBERS[name], 0).items()}


def mesh(*parts: Rows, config: str = "{}") -> dict[tuple[str, Any], Any]:
    """Return the rows of a mesh: these, and what its mesh config says in YAML."""
    decoded, problems = decode_mesh_config([yaml.safe_load(config)])
    assert decoded is not None, problems
    settings = {("MeshConfig", "mesh"): decoded, ("MeshConfig", "networks"): MeshNetworks()}
    return {key: row for part in (settings, *parts) for key, row in part.items()}
