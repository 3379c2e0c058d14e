"""Pod templates of workloads. Analyses of files read them, because files usually contain no Pods."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kubernetes.pod import Pod
from pilot.config.object import Object
from pilot.derive import derived
from pilot.mesh.tables.database import Mesh


@derived
def templates_in(db: Mesh, namespace: str) -> tuple[Object[Pod], ...]:
    """Return the Pod templates in a namespace. Each has the kind and the name of its workload."""
    rows = (db.pod_templates.get(key) for key in db.pod_templates.keys("namespace", namespace))
    return tuple(row for row in rows if row is not None)


def template_namespaces(db: Mesh) -> tuple[str, ...]:
    """Return the namespaces that have Pod templates."""
    return db.pod_templates.buckets("namespace")


def template_labels(db: Mesh, namespace: str) -> frozenset[frozenset[tuple[str, str]]]:
    """Return the distinct label sets of the Pod templates in a namespace."""
    return frozenset(frozenset(row.labels.items()) for row in templates_in(db, namespace))


def templates_with(db: Mesh, namespace: str, labels: Mapping[str, str]) -> list[Object[Pod]]:
    """Return the Pod templates in a namespace that have all `labels`."""
    return [row for row in templates_in(db, namespace) if labels.items() <= row.labels.items()]
