"""The plan of an installation: its steps, each with the objects of one component, and the dependencies between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from deploy.operator.components import COMPONENTS
from deploy.operator.inputs import system_namespace
from deploy.operator.manifest import Installation, in_apply_order
from deploy.operator.settings_tree import Plain, value_at
from pilot.install.installation_labels import OperatorOwner, owner_of, with_ownership_labels
from pilot.kube.object_client import ResourceKey, resource_key

DEPENDENCIES: Mapping[str, str] = {
    "Pilot": "Base",
    "Cni": "Base",
    "Ztunnel": "Cni",
    "IngressGateways": "Pilot",
    "EgressGateways": "Pilot",
}
"""Mapping from each component to its dependency. If the dependency is not installed, its own dependency takes its
place."""
_CLUSTER_SCOPED = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "GatewayClass",
        "IngressClass",
        "MutatingWebhookConfiguration",
        "Namespace",
        "PriorityClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    }
)


class Step(NamedTuple):
    """The installation of one component or one gateway. `name` is the name of its main object."""

    component: str
    name: str
    namespace: str
    objects: tuple[Plain, ...]

    @property
    def title(self) -> str:
        """Return the title for progress reports, such as "Pilot" or "IngressGateways istio-ingressgateway"."""
        return f"{self.component} {self.name}" if self.component.endswith("Gateways") else self.component


class InstallPlan(NamedTuple):
    """The desired state of an installation.

    `system` is the namespace of the control plane. `network` is the value of its network label, or "" if it has none.
    """

    operator: Plain
    owner: OperatorOwner
    system: str
    network: str
    steps: tuple[Step, ...]

    def keys(self) -> frozenset[ResourceKey]:
        """Return the keys of all objects."""
        return frozenset(resource_key(plain) for step in self.steps for plain in step.objects)

    def namespaces(self) -> list[str]:
        """Return the namespaces that must exist, starting with the control plane's."""
        used = (plain["metadata"].get("namespace") for step in self.steps for plain in step.objects)
        return list(dict.fromkeys(filter(None, (self.system, *used))))

    def dependencies_of(self, step: Step) -> Iterator[Step]:
        """Yield the steps that must be complete before a step starts."""
        dependency = DEPENDENCIES.get(step.component)
        while dependency:
            steps = [other for other in self.steps if other.component == dependency]
            if steps:
                yield from steps
                return
            dependency = DEPENDENCIES.get(dependency)


def build_install_plan(installation: Installation) -> InstallPlan:
    """Return the plan of an installation. Raises SettingsError if the name of its IstioOperator is invalid."""
    operator = installation.operator
    owner = owner_of(operator)
    steps = []
    for chosen, objects in installation.components:
        component = chosen.component.name
        prepared = tuple(
            with_ownership_labels(_with_namespace(plain, chosen.namespace), owner, component)
            for plain in in_apply_order(objects)
        )
        steps.append(Step(component, chosen.name, chosen.namespace, prepared))
    steps.sort(key=lambda step: [c.name for c in COMPONENTS].index(step.component))
    return InstallPlan(
        operator,
        owner,
        system_namespace(operator),
        str(value_at(operator, "spec.values.global.network", "")),
        tuple(steps),
    )


def _with_namespace(plain: Plain, namespace: str) -> Plain:
    """Return an object with its namespace set, unless it is cluster-scoped."""
    if plain["kind"] in _CLUSTER_SCOPED or plain["metadata"].get("namespace"):
        return plain
    return {**plain, "metadata": {**plain["metadata"], "namespace": namespace}}
