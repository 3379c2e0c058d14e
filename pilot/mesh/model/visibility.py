"""The namespaces that may see a service: exportTo, the mesh's defaults, and the mesh's limits for ServiceEntries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilot.config.mesh.mesh_config import ServiceEntryVisibility
from pilot.config.selector import LabelSelector
from pilot.mesh.model.service import PUBLIC

NOBODY: frozenset[str] = frozenset()
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


def resolve_export_to(export_to: Iterable[str], defaults: Iterable[str], namespace: str) -> frozenset[str]:
    """Returns the namespaces that `export_to` means: PUBLIC where it has "*", NOBODY where it has "~", "." is the own namespace."""
    said = frozenset(export_to) or frozenset(defaults) or PUBLIC
    if "*" in said:
        return PUBLIC
    if "~" in said:
        return NOBODY
    return frozenset(namespace if s == "." else s for s in said)


def limit_export(
    exported: frozenset[str], visibility: ServiceEntryVisibility | None, namespace: str, labels: Mapping[str, str]
) -> frozenset[str]:
    """Returns the namespaces that the mesh's `serviceEntryVisibility` leaves to a ServiceEntry of a namespace with these labels."""
    if visibility is None or not visibility.apply_to_sidecars or not exported:
        return exported
    verdict = entry_visibility(visibility, {NAMESPACE_NAME_LABEL: namespace, **labels})
    if verdict == "NONE":
        return NOBODY
    if verdict == "NAMESPACE":
        return frozenset((namespace,)) if exported is PUBLIC or "*" in exported or namespace in exported else NOBODY
    return exported


def entry_visibility(visibility: ServiceEntryVisibility, labels: Mapping[str, str]) -> str:
    """Returns NONE, NAMESPACE or PUBLIC: by the first policy whose rules all match, else the default."""
    for policy in visibility.policies:
        if all(
            r.namespace_selector is not None and selects(r.namespace_selector, labels) for r in policy.matching_rules
        ):
            return policy.visibility
    return visibility.default_visibility


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Returns whether a label selector of Kubernetes selects these labels; without any requirement it selects everything."""
    if any(labels.get(k) != v for k, v in selector.match_labels.items()):
        return False
    for e in selector.match_expressions:
        value = labels.get(e.key)
        met = {
            "In": value in e.values,
            "NotIn": value not in e.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not met.get(e.operator, False):
            return False
    return True
