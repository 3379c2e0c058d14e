"""The namespaces whose routes or ListenerSets may attach to a listener or Gateway."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.gateway_api.gateway import From
from pilot.config.kinds.kubernetes import NAMESPACE
from pilot.config.selector import LabelSelector
from pilot.derive import hub
from pilot.mesh.model.visibility import NAMESPACE_NAME_LABEL, selects
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.namespaces import namespace_labels


@hub
def labelled_namespaces(db: Mesh) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of each declared namespace in the local cluster."""
    cluster = db.settings.registry.cluster_id
    return {
        key.name: {NAMESPACE_NAME_LABEL: key.name, **row.labels}
        for key in NAMESPACE.all_keys(db)
        if key.cluster == cluster and (row := NAMESPACE.get(db, key)) is not None
    }


def allowed_namespaces(db: Mesh, from_: From, selector: LabelSelector | None, owner_namespace: str) -> tuple[str, ...]:
    """Return the namespaces that may attach to an object in `owner_namespace`, or ("*",) for all. Not memoised."""
    if from_ == "None":
        return ()
    if from_ == "Same":
        return (owner_namespace,)
    if from_ == "All" or selector is None:
        return ("*",)
    return tuple(sorted(name for name, labels in labelled_namespaces(db).items() if selects(selector, labels)))


def is_allowed(db: Mesh, from_: From, selector: LabelSelector | None, owner_namespace: str, namespace: str) -> bool:
    """Return True if a namespace may attach to an object in `owner_namespace`. Not memoised."""
    if from_ != "Selector":
        return from_ == "All" or (from_ == "Same" and namespace == owner_namespace)
    if selector is None:
        return False
    labels = namespace_labels(db, db.settings.registry.cluster_id, namespace)
    return selects(selector, {NAMESPACE_NAME_LABEL: namespace, **labels})
