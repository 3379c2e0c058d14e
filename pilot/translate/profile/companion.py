"""Chooses what a proxy and its companion get whatever kind of proxy it is."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.derive import derived
from pilot.lib.xds_types import PROXY_CONFIG
from pilot.model.inputs import Mesh
from pilot.model.views.trust_bundle import has_several_roots
from pilot.translate.profile.addresses import address_groups
from pilot.translate.profile.plan import Group
from pilot.translate.trust_bundle import trusted_roots


@derived
def companion_groups(db: Mesh) -> Mapping[str, tuple[Group, ...]]:
    """Returns the roots to trust where the mesh has several, and in an ambient mesh what an Envoy knows its peers by that no longer say who they
    are."""
    return {**({PROXY_CONFIG: (Group(trusted_roots, ()),)} if has_several_roots(db) else {}), **address_groups(db)}
