"""Tells what becomes of the patches of EnvoyFilters in vain: they change nothing of any connected proxy, or do not fit what they match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.config.networking.envoy_filter import EnvoyFilter
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.derive import Gather, derived
from pilot.envoy.envoy_filter.added import added, added_extensions
from pilot.envoy.envoy_filter.effects import Misfit
from pilot.envoy.envoy_filter.patch import patch
from pilot.envoy.envoy_filter.patched import PatchSourceKey, patched, patched_resources
from pilot.envoy.plans import plan
from pilot.envoy.plans.plan import Group, Plan
from pilot.lib.protobuf.fault import as_written, shown
from pilot.lib.xds_types import EXTENSION
from pilot.mesh.analysis.check import Check, told
from pilot.mesh.analysis.selector import check_selector, selected_anywhere
from pilot.mesh.analysis.selector import shown as shown_labels
from pilot.mesh.model.facets import PatchFacet, PatchKey
from pilot.mesh.proxies.patches import configured_patch, selecting_filters
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace
from pilot.mesh.tables.proxies import all_proxies

_NOT_DELIVERED = frozenset(("BOOTSTRAP",))


class PatchOutcome(NamedTuple):
    """What became of patches: those that changed or added something, and those that do not fit."""

    applied: frozenset[PatchKey] = frozenset()
    misfits: frozenset[Misfit] = frozenset()


@derived
def _outcome(db: Mesh, source: PatchSourceKey, facet: PatchFacet) -> PatchOutcome:
    """Returns what became of the patches of a facet in one group."""
    found = patched_resources(db, source, facet).values()
    return PatchOutcome(
        frozenset(k for one in found for k in one.applied), frozenset(m for one in found for m in one.misfits)
    )


class Reach(NamedTuple):
    """What EnvoyFilters reach: those that select some connected proxy, and the patched groups of these proxies, each once."""

    selecting: frozenset[ObjectKey]
    groups: frozenset[Group]


@derived
def _reach_of(db: Mesh, node_id: str) -> Reach | None:
    """Returns what EnvoyFilters reach at one proxy; None where none selects it."""
    found = selecting_filters(db, node_id)
    return Reach(frozenset(found), frozenset(_patched_groups(plan(db, node_id)))) if found else None


_reaches: Gather[str, [], Reach] = Gather("reaches of EnvoyFilters", all_proxies, _reach_of)


@derived
def _reach(db: Mesh) -> Reach:
    """Returns what EnvoyFilters reach now. No hub: it follows from all proxies, and is looked at once it is quiet, not in each commit."""
    found = _reaches(db).values()
    return Reach(
        frozenset().union(*{one.selecting for one in found}), frozenset().union(*(one.groups for one in found))
    )


def _patched_groups(found: Plan) -> Iterator[Group]:
    yield from (group for groups in found.groups.values() for group in groups if group.fn in (patched, added))
    yield from (group.of(frozenset()) for group in found.named.get(EXTENSION, ()) if group.fn is added_extensions)


@derived
def _outcomes(db: Mesh) -> PatchOutcome:
    """Returns what became of all patches at all proxies."""
    applied: set[PatchKey] = set()
    misfits: set[Misfit] = set()
    for fn, args in _reach(db).groups:
        if fn is patched:
            found = _outcome(db, *args)
            applied |= found.applied
            misfits |= found.misfits
        elif fn is added:
            applied |= added(db, *args).keys()
        else:
            applied |= set(args[-1].patches)
    return PatchOutcome(frozenset(applied), frozenset(misfits))


def patch_results(db: Mesh) -> Mapping[PatchKey, bool]:
    """Returns of each patch that changed something of a connected proxy True, and False of each that was left out of something it matches."""
    outcome = _outcomes(db)
    return {
        **dict.fromkeys(outcome.applied, True),
        **dict.fromkeys((misfit.patch for misfit in outcome.misfits), False),
    }


# -- problems --------------------------------------------------------------------------------------------------------------


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return ENVOY_FILTER.all_keys(db)


@derived
def envoy_filter_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Returns the problems of an EnvoyFilter with the proxies that are connected, and with the workloads that there are."""
    found = ENVOY_FILTER.get(db, key)
    return told(found, below("spec", _check(db, found))) if found is not None else ()


ENVOY_FILTERS = Check("EnvoyFilter", _keys, envoy_filter_problems)


def _check(db: Mesh, o: Object[EnvoyFilter]) -> Problems:
    yield from below("workloadSelector", _check_selector(db, o))
    outcome, selects = _outcomes(db), o.key in _reach(db).selecting
    for position, _ in enumerate(o.spec.config_patches):
        key = PatchKey(o.key, position)
        misfits = [misfit for misfit in outcome.misfits if misfit.patch == key]
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
                "changes nothing that any of the connected proxies is sent",
            )


def _check_selector(db: Mesh, o: Object[EnvoyFilter]) -> Problems:
    labels = o.spec.workload_selector.labels if o.spec.workload_selector is not None else {}
    if o.namespace != root_namespace(db):
        yield from check_selector(db, o.namespace, labels)
    elif labels and not selected_anywhere(db, labels, o.namespace):
        yield warning("selector-without-workloads", "", f"no workload has {shown_labels(labels)}")


def _check_misfits(db: Mesh, key: PatchKey, misfits: Iterable[Misfit]) -> Problems:
    """Yields a problem for each thing that does not fit, with the place in the value as it is written."""
    found = configured_patch(db, key)
    value = found.patch.value if found is not None and found.patch is not None else None
    for _, fault in sorted(misfits):
        place = shown(as_written(fault.place, value or {}))
        yield from below("patch", below("value", (warning(fault.code, place, f"{fault.text}; the patch is ignored"),)))


def _is_delivered(db: Mesh, key: PatchKey) -> bool:
    """Returns whether a patch is of something that proxies are sent at all; where it is not, that is told when it is read."""
    found = configured_patch(db, key)
    return (
        found is not None
        and found.apply_to not in _NOT_DELIVERED
        and (found.match is None or found.match.context != "WAYPOINT")
    )
