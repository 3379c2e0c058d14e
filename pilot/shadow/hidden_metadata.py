"""Infers metadata of proxies that the reference's pages do not show.

istiod's pages show only the metadata that it knows. EnvoyFilters may match any other. A proxy has a value of theirs if
its resources at the reference are those that this control plane derives with this value.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.shadow.cluster_snapshot import ShadowMesh
from pilot.shadow.reference_proxies import ReferenceProxy

MOST_VALUES = 20
"""Maximum number of values that are tried for one proxy."""


def matched_metadata(mesh: ShadowMesh) -> list[tuple[str, str]]:
    """Return the metadata, as pairs of key and value, that EnvoyFilters match."""
    patches = [patch for _, row in ENVOY_FILTER.table(mesh.mesh).rows() for patch in row.spec.config_patches]
    matches = [patch.match.proxy for patch in patches if patch.match is not None and patch.match.proxy is not None]
    return sorted({pair for match in matches for pair in match.metadata.items()})


def infer_metadata(
    mesh: ShadowMesh, one: ReferenceProxy, pairs: list[tuple[str, str]], differences: Callable[[ReferenceProxy], int]
) -> ReferenceProxy:
    """Return a proxy with those metadata that make it more like the reference.

    `differences` returns the number of its resources that differ.
    """
    hidden = [pair for pair in pairs if pair[0] not in one.proxy.metadata][:MOST_VALUES]
    least = differences(one) if hidden else 0
    for key, value in hidden:
        if not least:
            break
        proxy = msgspec.structs.replace(one.proxy, metadata={**one.proxy.metadata, key: value})
        trial = one._replace(proxy=proxy)
        mesh.connect([(one.node_id, proxy)])
        number = differences(trial)
        if number < least:
            one, least = trial, number
    if hidden:
        mesh.connect([(one.node_id, one.proxy)])
    return one
