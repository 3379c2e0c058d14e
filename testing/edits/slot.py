"""A slot for random edits: a place for one of several variants, or for nothing."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from testing.mesh.objects import Plain


class Slot(NamedTuple):
    """A slot. `empty` is the probability of being empty, `cluster` the cluster of its object."""

    name: str
    kind: Literal["object", "mesh", "networks", "proxy", "rows"]
    variants: tuple[Any, ...]
    empty: float = 0.15
    cluster: str = "Kubernetes"

    @property
    def table(self) -> str:
        """Return the kind of its objects, the first word of its name."""
        return self.name.partition(" ")[0]


# Probability of being empty, for kinds that mask each other or most of the mesh
RARE = {"Sidecar": 0.7, "DestinationRule": 0.4, "VirtualService": 0.4, "PeerAuthentication": 0.4}


def one_of(*variants: Plain) -> Slot:
    """Return a slot of an object."""
    first = variants[0]
    name = f"{first['kind']} {first['metadata'].get('namespace', '')}/{first['metadata']['name']}"
    return Slot(name, "object", variants, RARE.get(first["kind"], 0.15))
