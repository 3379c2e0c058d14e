"""Limits the total size of the policies that are copied into the filter chains of a proxy.

Each filter chain contains a copy of the policies that apply to it. Policies of 1 MB and a proxy with a thousand ports
would otherwise result in gigabytes of configuration. A chain beyond the limit denies everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from pilot.derive import derived
from pilot.envoy.listener.policy_filters import http_policy_filters, network_policy_filters, network_statistics_filters
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.tables.database import Mesh

MAX_COPIED_BYTES = 16_000_000
"""Maximum total size of the copies in bytes, without the part of each copy within `FREE_COPY_BYTES`."""
FREE_COPY_BYTES = 16_000
"""Size in bytes up to which policies may be copied any number of times. It is enough for about 100 rules."""
T = TypeVar("T")


@derived
def policy_size(db: Mesh, listening: ListeningFacet) -> int:
    """Return the size of the policies in a filter chain, in bytes."""
    http: int = sum(item.ByteSize() for _, item in http_policy_filters(db, listening, 0))
    network: int = sum(
        item.ByteSize()
        for _, item in (*network_policy_filters(db, listening), *network_statistics_filters(db, listening))
    )
    return max(http, network)


def limit_copies(
    db: Mesh, listening: ListeningFacet, keys: Iterable[T], weight: Callable[[T], int]
) -> Iterator[tuple[T, ListeningFacet]]:
    """Yield each key with the facet to use for its filter chains: beyond the limit, it is one that denies everything.

    `weight` returns the number of filter chains for a key.
    """
    excess = policy_size(db, listening) - FREE_COPY_BYTES
    copies = MAX_COPIED_BYTES // excess if excess > 0 else None
    for key in keys:
        if copies is not None:
            copies -= weight(key)
        yield key, listening if copies is None or copies >= 0 else replace(listening, denies=True)
