"""Checks that the providers, workloads and targets of Telemetries exist, and that proxies support their settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pilot.config.kinds.istio import TELEMETRY
from pilot.config.object import Object, ObjectKey, age
from pilot.config.problem import Problem, Problems, below, warning
from pilot.config.telemetry import AccessLogging, Metrics, Telemetry, TelemetryTracing
from pilot.derive import Steps, derived, derived_in_steps
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.overlap import Selecting, find_overlaps
from pilot.mesh.analysis.policy import check_targets
from pilot.mesh.analysis.selector import check_selector, label_sets
from pilot.mesh.analysis.telemetry_provider import PARTS, TelemetryPart, check_provider, missing_support, needs_of
from pilot.mesh.model.telemetry_features import CEL_FILTER, FORMATTED_TAG, PROPAGATION
from pilot.mesh.security.policies import attachments
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace
from pilot.mesh.telemetry.providers import default_providers
from pilot.mesh.telemetry.telemetry import provider_names, with_providers

Entry = AccessLogging | Metrics | TelemetryTracing


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return TELEMETRY.all_keys(db)


@derived
def telemetry_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a Telemetry and other objects, and each feature that proxies lack."""
    telemetry = TELEMETRY.get(db, key)
    return attribute(telemetry, below("spec", _check(db, telemetry))) if telemetry is not None else ()


TELEMETRIES = Check("Telemetry", _keys, telemetry_problems)


def _check(db: Mesh, o: Object[Telemetry]) -> Problems:
    labels = o.spec.selector.match_labels if o.spec.selector is not None else {}
    yield from below("selector", check_selector(db, o.namespace, labels))
    yield from check_targets(db, o.namespace, o.spec.target_ref, o.spec.target_refs)
    yield from _check_unique(db, o)
    yield from _check_overlap(db, o, labels)
    for field, part in PARTS.items():
        yield from _check_part(db, o, field, part)


def _check_unique(db: Mesh, o: Object[Telemetry]) -> Problems:
    """Yield a problem if a Telemetry for all workloads in a namespace is shadowed by an older one."""
    first = next((a.key for a in attachments(db, TELEMETRY.id.name, o.namespace) if not a.selects), o.key)
    older = TELEMETRY.get(db, first)
    if first != o.key and not _selects(o.spec) and older is not None and age(older) < age(o):
        yield warning(
            "policy-shadowed",
            "",
            f"the older Telemetry {first.namespace}/{first.name} applies to all workloads, so this one has no effect",
        )


def _check_overlap(db: Mesh, o: Object[Telemetry], labels: Mapping[str, str]) -> Problems:
    """Yield a problem if an older Telemetry in the namespace selects some of the same workloads."""
    if labels and (oldest := _oldest_overlap(db, o.key)) is not None:
        text = f"the older Telemetry {oldest.namespace}/{oldest.name} applies to some or all of its workloads"
        yield warning("telemetry-overlap", "selector", text)


@derived
def _oldest_overlap(db: Mesh, key: ObjectKey) -> ObjectKey | None:
    """Return the oldest Telemetry that selects some of the workloads that a Telemetry selects, or None."""
    return next(iter(_overlaps(db, key.namespace).get(key, ())), None)


@derived_in_steps
def _overlaps(db: Mesh, namespace: str) -> Steps[Mapping[ObjectKey, tuple[ObjectKey, ...]]]:
    keys = TELEMETRY.keys(db, "namespace", namespace)
    rows = sorted((row for key in keys if (row := TELEMETRY.get(db, key)) is not None), key=age)
    yield None
    selecting = (
        Selecting(row.key, frozenset(row.spec.selector.match_labels.items()))
        for row in rows
        if row.spec.selector is not None and row.spec.selector.match_labels
    )
    return (yield from find_overlaps(selecting, label_sets(db, namespace)))


def _selects(spec: Telemetry) -> bool:
    return bool((spec.selector is not None and spec.selector.match_labels) or spec.target_ref or spec.target_refs)


def _check_part(db: Mesh, o: Object[Telemetry], field: str, part: TelemetryPart) -> Problems:
    own, before = part.entries(o.spec), [entry for spec in _before(db, o) for entry in part.entries(spec)]
    defaults = part.defaults(default_providers(db))
    for index, (entry, names) in enumerate(list(with_providers([*before, *own], defaults))[len(before) :]):
        place = f"{field}[{index}]"
        if not names:
            yield warning(
                "provider-not-set", place, "no provider is configured here, in a parent Telemetry or in the mesh config"
            )
        for number, name in enumerate(provider_names(entry)):
            yield from below(f"{place}.providers[{number}].name", check_provider(db, name, part))
        places = () if o.namespace == root_namespace(db) else (o.namespace,)
        yield from below(place, missing_support(db, [*needs_of(db, names, part), *_needs(entry)], places))


def _before(db: Mesh, o: Object[Telemetry]) -> Iterator[Telemetry]:
    """Yield the mesh-wide and namespace-wide Telemetries from which the entries of a Telemetry inherit providers."""
    namespaces = (
        dict.fromkeys((root_namespace(db), o.namespace)) if _selects(o.spec) else dict.fromkeys((root_namespace(db),))
    )
    for namespace in namespaces:
        first = next((a.key for a in attachments(db, TELEMETRY.id.name, namespace) if not a.selects), None)
        row = TELEMETRY.get(db, first) if first is not None and first != o.key else None
        if row is not None:
            yield row.spec


def _needs(entry: Entry) -> Iterable[str]:
    """Return the proxy features that an entry of a Telemetry needs."""
    if isinstance(entry, AccessLogging):
        return (CEL_FILTER,) if entry.filter is not None else ()
    if isinstance(entry, Metrics):
        return ()
    formatted: Sequence[str] = (
        (FORMATTED_TAG,) if any(tag.formatter is not None for tag in entry.custom_tags.values()) else ()
    )
    return (*formatted, *((PROPAGATION,) if entry.disable_context_propagation else ()))
