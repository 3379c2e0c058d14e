"""Checks that the namespaces in the exportTo of Kubernetes Services exist, and that no ExternalName is a circular
alias."""

from __future__ import annotations

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.kubernetes.service import EXPORT_TO, Service
from pilot.config.object import Object, RegistryKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.derive import derived
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.export_to import check_export_to
from pilot.mesh.registry.aliases import is_circular_alias
from pilot.mesh.registry.kubernetes_services import exported_names, kubernetes_hostname
from pilot.mesh.tables.database import Mesh


@derived
def _keys(db: Mesh) -> tuple[RegistryKey, ...]:
    return tuple(dict.fromkeys((*SERVICE.keys(db, "external", True), *SERVICE.keys(db, "exported", True))))


@derived
def service_problems(db: Mesh, key: RegistryKey) -> tuple[Problem, ...]:
    """Return the problems between a Kubernetes Service and other objects."""
    kubernetes_service = SERVICE.get(db, key)
    return attribute(kubernetes_service, _check(db, kubernetes_service)) if kubernetes_service is not None else ()


SERVICES = Check("Service", _keys, service_problems)


def _check(db: Mesh, o: Object[Service]) -> Problems:
    for problem in check_export_to(db, exported_names(o)):
        yield from below(f"metadata.annotations[{EXPORT_TO}]", (problem,))
    if o.spec.type == "ExternalName" and is_circular_alias(
        db, kubernetes_hostname(o.name, o.namespace, db.settings.registry.domain)
    ):
        yield warning(
            "alias-circle",
            "spec.externalName",
            f"{o.spec.external_name} is part of a cycle of aliases, so it resolves to nothing",
        )
