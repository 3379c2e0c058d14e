"""The steps of an installation: the objects of each component, and which component comes after which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from deploy.operator.components import COMPONENTS
from deploy.operator.inputs import system_namespace
from deploy.operator.manifest import Installation, in_apply_order
from deploy.operator.settings_tree import Plain, value_at
from pilot.install.installation_labels import OperatorOwner, owner_of, with_ownership_labels
from pilot.kube.object_client import ResourceKey, resource_key

AFTER: Mapping[str, str] = {
    "Pilot": "Base",
    "Cni": "Base",
    "Ztunnel": "Cni",
    "IngressGateways": "Pilot",
    "EgressGateways": "Pilot",
}
"""The component that each waits for; one that is not installed is not waited for, but what it would wait for is."""
_OF_CLUSTER = frozenset(
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
    """One component, or one gateway: `name` is that of its main object."""

    component: str
    name: str
    namespace: str
    objects: tuple[Plain, ...]

    @property
    def title(self) -> str:
        """Returns how it is called in reports: "Pilot", "IngressGateways istio-ingressgateway"."""
        return f"{self.component} {self.name}" if self.component.endswith("Gateways") else self.component


class InstallPlan(NamedTuple):
    """An installation as it is to be in a cluster. `network` is a label of the system namespace."""

    operator: Plain
    owner: OperatorOwner
    system: str
    network: str
    steps: tuple[Step, ...]

    def keys(self) -> frozenset[ResourceKey]:
        """Returns which objects there are to be."""
        return frozenset(resource_key(plain) for step in self.steps for plain in step.objects)

    def namespaces(self) -> list[str]:
        """Returns the namespaces that must be there, that of the control plane first."""
        used = (plain["metadata"].get("namespace") for step in self.steps for plain in step.objects)
        return list(dict.fromkeys(filter(None, (self.system, *used))))

    def waits_for(self, step: Step) -> Iterator[Step]:
        """Yields the steps that come before one."""
        before = AFTER.get(step.component)
        while before:
            found = [other for other in self.steps if other.component == before]
            if found:
                yield from found
                return
            before = AFTER.get(before)


def build_install_plan(installation: Installation) -> InstallPlan:
    """Returns the plan of an installation. SettingsError where its name cannot be used."""
    operator = installation.operator
    owner = owner_of(operator)
    steps = []
    for chosen, objects in installation.components:
        component = chosen.component.name
        made = tuple(
            with_ownership_labels(_placed(plain, chosen.namespace), owner, component)
            for plain in in_apply_order(objects)
        )
        steps.append(Step(component, chosen.name, chosen.namespace, made))
    steps.sort(key=lambda step: [c.name for c in COMPONENTS].index(step.component))
    return InstallPlan(
        operator,
        owner,
        system_namespace(operator),
        str(value_at(operator, "spec.values.global.network", "")),
        tuple(steps),
    )


def _placed(plain: Plain, namespace: str) -> Plain:
    """Returns an object with the namespace that it goes to."""
    if plain["kind"] in _OF_CLUSTER or plain["metadata"].get("namespace"):
        return plain
    return {**plain, "metadata": {**plain["metadata"], "namespace": namespace}}
