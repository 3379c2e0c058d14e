"""Reports EnvoyFilter patches that affect no connected proxy, or that do not fit the resources that they match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.config.networking.envoy_filter import EnvoyFilter
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.derive import Gather, derived
from pilot.envoy.envoy_filter.added_resources import added, added_extensions
from pilot.envoy.envoy_filter.parsed_patch import patch
from pilot.envoy.envoy_filter.patch_effects import Misfit
from pilot.envoy.envoy_filter.patched_groups import (
    PatchedGroupKey,
    excessive_patches,
    patched,
    patched_resources,
)
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.plans.resource_group import Group, ProxyPlan
from pilot.lib.protobuf.fault import Violation, as_written, shown
from pilot.lib.xds_types import EXTENSION
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.selector import check_selector, check_selector_anywhere
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.proxies.patches import configured_patch, selecting_filters
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace
from pilot.mesh.tables.proxies import all_proxies

_NOT_DELIVERED = frozenset(("BOOTSTRAP",))
_EXCESSIVE = Violation(
    "too-large", (), "all patches together are too large for the number of resources that they match"
)


class PatchOutcome(NamedTuple):
    """The patches that changed or added a resource, and the patches that do not fit a resource."""

    applied: frozenset[PatchKey] = frozenset()
    misfits: frozenset[Misfit] = frozenset()


@derived
def _outcome(db: Mesh, source: PatchedGroupKey, facet: PatchFacet) -> PatchOutcome:
    """Return the outcome of a facet's patches in one group."""
    results = patched_resources(db, source, facet).values()
    return PatchOutcome(
        frozenset(k for result in results for k in result.applied),
        frozenset(m for result in results for m in result.misfits).union(
            Misfit(key, _EXCESSIVE) for key in excessive_patches(db, source, facet)
        ),
    )


class Reach(NamedTuple):
    """The EnvoyFilters that select at least one connected proxy, and the patched groups of these proxies."""

    selecting: frozenset[ObjectKey]
    groups: frozenset[Group]


@derived
def _reach_of(db: Mesh, node_id: str) -> Reach | None:
    """Return the EnvoyFilters that select one proxy, and the proxy's patched groups.

    Return None if no EnvoyFilter selects the proxy.
    """
    filters = selecting_filters(db, node_id)
    return Reach(frozenset(filters), frozenset(_patched_groups(proxy_plan(db, node_id)))) if filters else None


_reaches: Gather[str, [], Reach] = Gather("reaches of EnvoyFilters", all_proxies, _reach_of)


@derived
def _reach(db: Mesh) -> Reach:
    """Return the EnvoyFilters that select any connected proxy, and the patched groups of all these proxies.

    This is not a hub, because it depends on all proxies. It is evaluated only when the mesh is quiet, and not in each
    commit.
    """
    reaches = _reaches(db).values()
    return Reach(
        frozenset().union(*{reach.selecting for reach in reaches}),
        frozenset().union(*(reach.groups for reach in reaches)),
    )


def _patched_groups(plan: ProxyPlan) -> Iterator[Group]:
    yield from (group for groups in plan.groups.values() for group in groups if group.fn in (patched, added))
    yield from (group.of(frozenset()) for group in plan.by_name.get(EXTENSION, ()) if group.fn is added_extensions)


@derived
def _outcomes(db: Mesh) -> PatchOutcome:
    """Return the combined outcome of all patches on all proxies."""
    applied: set[PatchKey] = set()
    misfits: set[Misfit] = set()
    for fn, args, _ in _reach(db).groups:
        if fn is patched:
            outcome = _outcome(db, *args)
            applied |= outcome.applied
            misfits |= outcome.misfits
        elif fn is added:
            applied |= added(db, *args).keys()
        else:
            applied |= set(args[-1].patches)
    return PatchOutcome(frozenset(applied), frozenset(misfits))


def patch_results(db: Mesh) -> Mapping[PatchKey, bool]:
    """Return a mapping from patch to whether it was applied to the connected proxies.

    The value is False if the patch does not fit a resource. Otherwise, it is True if the patch changed something. Other
    patches are omitted.
    """
    outcome = _outcomes(db)
    return {
        **dict.fromkeys(outcome.applied, True),
        **dict.fromkeys((misfit.patch for misfit in outcome.misfits), False),
    }


# -- problems ----------------------------------------------------------------------------------------------------------


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return ENVOY_FILTER.all_keys(db)


@derived
def envoy_filter_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems of an EnvoyFilter, given the connected proxies and the existing workloads."""
    row = ENVOY_FILTER.get(db, key)
    return attribute(row, below("spec", _check(db, row))) if row is not None else ()


ENVOY_FILTERS = Check("EnvoyFilter", _keys, envoy_filter_problems)


def _check(db: Mesh, row: Object[EnvoyFilter]) -> Problems:
    yield from below("workloadSelector", _check_selector(db, row))
    outcome, selects = _outcomes(db), row.key in _reach(db).selecting
    by_patch: defaultdict[PatchKey, list[Misfit]] = defaultdict(list)
    for misfit in outcome.misfits:
        by_patch[misfit.patch].append(misfit)
    for position, _ in enumerate(row.spec.config_patches):
        key = PatchKey(row.key, position)
        misfits = by_patch.get(key, ())
        yield from below(f"configPatches[{position}]", _check_misfits(db, key, misfits))
        if (
            selects
            and not misfits
            and key not in outcome.applied
            and patch(db, key) is not None
            and _is_delivered(db, key)
        ):
            yield warning(
                "patch-without-effect",
                f"configPatches[{position}]",
                "has no effect on any connected proxy",
            )


def _check_selector(db: Mesh, row: Object[EnvoyFilter]) -> Problems:
    labels = row.spec.workload_selector.labels if row.spec.workload_selector is not None else {}
    if row.namespace != root_namespace(db):
        yield from check_selector(db, row.namespace, labels)
    else:
        yield from check_selector_anywhere(db, labels, row.namespace)


def _check_misfits(db: Mesh, key: PatchKey, misfits: Iterable[Misfit]) -> Problems:
    """Yield a warning for each misfit. Its path refers to the value as the user wrote it."""
    configured = configured_patch(db, key)
    value = configured.patch.value if configured is not None and configured.patch is not None else None
    path = "patch" if value is None else "patch.value"
    for _, fault in sorted(misfits):
        place = shown(as_written(fault.place, value or {}))
        yield from below(path, (warning(fault.code, place, f"{fault.text}; the patch is ignored"),))


def _is_delivered(db: Mesh, key: PatchKey) -> bool:
    """Return whether a patch applies to resources that are sent to proxies.

    If it does not, a warning is already reported when the EnvoyFilter is read.
    """
    configured = configured_patch(db, key)
    return (
        configured is not None
        and configured.apply_to not in _NOT_DELIVERED
        and (configured.match is None or configured.match.context != "WAYPOINT")
    )
