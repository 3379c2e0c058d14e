"""The namespaces in which a service is visible.

They depend on exportTo, the mesh's defaults for it, and the mesh's limits for ServiceEntries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilot.config.mesh.mesh_config import ServiceEntryVisibility
from pilot.config.selector import LabelSelector
from pilot.mesh.model.service import PUBLIC

NO_NAMESPACES: frozenset[str] = frozenset()
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


def resolve_export_to(export_to: Iterable[str], defaults: Iterable[str], namespace: str) -> frozenset[str]:
    """Return the namespaces in `export_to` or, if it is empty, the namespaces in `defaults`.

    If they contain "*", return PUBLIC. Otherwise, if they contain "~", return NO_NAMESPACES. "." is replaced with
    `namespace`.
    """
    namespaces = frozenset(export_to) or frozenset(defaults) or PUBLIC
    if "*" in namespaces:
        return PUBLIC
    if "~" in namespaces:
        return NO_NAMESPACES
    return frozenset(namespace if name == "." else name for name in namespaces)


def limit_export(
    exported: frozenset[str], visibility: ServiceEntryVisibility | None, namespace: str, labels: Mapping[str, str]
) -> frozenset[str]:
    """Return the namespaces in which a ServiceEntry is visible after the mesh's `serviceEntryVisibility` is applied.

    `labels` are those of the entry's namespace.
    """
    if visibility is None or not visibility.apply_to_sidecars or not exported:
        return exported
    limit = entry_visibility(visibility, {NAMESPACE_NAME_LABEL: namespace, **labels})
    if limit == "NONE":
        return NO_NAMESPACES
    if limit == "NAMESPACE":
        return (
            frozenset((namespace,)) if exported is PUBLIC or "*" in exported or namespace in exported else NO_NAMESPACES
        )
    return exported


def entry_visibility(visibility: ServiceEntryVisibility, labels: Mapping[str, str]) -> str:
    """Return NONE, NAMESPACE or PUBLIC, as set by the first policy whose rules all match. If there is none, return the
    default."""
    for policy in visibility.policies:
        if all(
            r.namespace_selector is not None and selects(r.namespace_selector, labels) for r in policy.matching_rules
        ):
            return policy.visibility
    return visibility.default_visibility


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return True if a Kubernetes label selector matches the labels. An empty selector matches everything."""
    if any(labels.get(k) != v for k, v in selector.match_labels.items()):
        return False
    for expression in selector.match_expressions:
        value = labels.get(expression.key)
        matches = {
            "In": value in expression.values,
            "NotIn": value not in expression.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not matches.get(expression.operator, False):
            return False
    return True
