"""A slot of random edits: a place that holds one of its variants or nothing."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from testing.mesh.objects import Plain


class Slot(NamedTuple):
    """`empty`: how likely it holds nothing. `cluster`: where its object is."""

    name: str
    kind: Literal["object", "mesh", "networks", "proxy", "rows"]
    variants: tuple[Any, ...]
    empty: float = 0.15
    cluster: str = "Kubernetes"

    @property
    def table(self) -> str:
        """The kind of its objects, which is what its name begins with."""
        return self.name.partition(" ")[0]


RARE = {
    "Sidecar": 0.7,
    "DestinationRule": 0.4,
    "VirtualService": 0.4,
    "PeerAuthentication": 0.4,
}  # they hide each other, or most of the mesh


def one_of(*variants: Plain) -> Slot:
    """A slot of an object."""
    first = variants[0]
    name = f"{first['kind']} {first['metadata'].get('namespace', '')}/{first['metadata']['name']}"
    return Slot(name, "object", variants, RARE.get(first["kind"], 0.15))
