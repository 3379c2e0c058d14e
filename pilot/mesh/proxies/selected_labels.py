"""The label keys that occur in selectors. Labels with other keys cannot affect the resources of a proxy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.object import ObjectKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.model.facets import ScopeFacet
from pilot.mesh.proxies.placement import placement
from pilot.mesh.scope.sidecar_scope import egress_listeners
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_services import egress_virtual_services, virtual_service, virtual_service_keys


@hub
def outbound_label_keys(db: Mesh, scope: ScopeFacet) -> frozenset[str]:
    """Return the label keys that the outbound configuration of a scope uses.

    They occur in sourceLabels of VirtualServices, in workloadSelectors of DestinationRules in the namespace, and in
    failover priorities.
    """
    keys = _rule_label_keys(db, scope.namespace) | placement(db).labels
    if not scope.gateway:
        for index in range(len(egress_listeners(db, scope))):
            for namespace in {key.namespace for key in egress_virtual_services(db, scope, index)}:
                keys |= _source_label_keys(db, namespace)
    return frozenset(keys)


@derived
def _virtual_service_label_keys(db: Mesh, key: ObjectKey, _: str) -> frozenset[str] | None:
    row = virtual_service(db, key)
    if row is None:
        return None
    spec = row.spec
    by_rule: Iterable[Iterable[Any]] = (
        *(r.match for r in spec.http),
        *(r.match for r in spec.tcp),
        *(r.match for r in spec.tls),
    )
    return frozenset(k for matches in by_rule for m in matches for k in m.source_labels) or None


_label_keys_by_virtual_service: Gather[ObjectKey, [str], frozenset[str]] = Gather(
    "source_labels", virtual_service_keys, _virtual_service_label_keys
)


@derived
def _source_label_keys(db: Mesh, namespace: str) -> frozenset[str]:
    return frozenset().union(*_label_keys_by_virtual_service(db, namespace).values())


@hub
def _destination_rule_keys(db: Mesh, namespace: str) -> tuple[ObjectKey, ...]:
    return DESTINATION_RULE.keys(db, "namespace", namespace)


@derived
def _destination_rule_label_keys(db: Mesh, key: ObjectKey, _: str) -> frozenset[str] | None:
    row = DESTINATION_RULE.get(db, key)
    selector = row.spec.workload_selector if row is not None else None
    return frozenset(selector.match_labels) if selector is not None and selector.match_labels else None


_label_keys_by_destination_rule: Gather[ObjectKey, [str], frozenset[str]] = Gather(
    "workload_labels", _destination_rule_keys, _destination_rule_label_keys
)


@derived
def _rule_label_keys(db: Mesh, namespace: str) -> frozenset[str]:
    return frozenset().union(*_label_keys_by_destination_rule(db, namespace).values())
