"""The components of an installation: their charts, their default state, and the values for their charts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from deploy.operator.inputs import STANDARD_GATEWAYS, system_namespace
from deploy.operator.settings_tree import Plain, deep_merge, value_at, with_value


class Component(NamedTuple):
    """A component.

    name: The value of the component label on its objects.
    field: Its field in spec.components.
    kind, object, container: The workload that k8s settings modify.
    values: The path of its values in spec.values.
    flat: Whether its chart has these values at the top level.
    """

    name: str
    field: str
    chart: str
    kind: str = ""
    object: str = ""
    container: str = ""
    values: str = ""
    flat: bool = False


COMPONENTS = (
    Component("Base", "base", "base", values="global"),
    Component("Pilot", "pilot", "istiod", "Deployment", "istiod", "discovery", "pilot"),
    Component(
        "IngressGateways",
        "ingressGateways",
        "ingress",
        "Deployment",
        "istio-ingressgateway",
        "istio-proxy",
        "gateways.istio-ingressgateway",
    ),
    Component(
        "EgressGateways",
        "egressGateways",
        "egress",
        "Deployment",
        "istio-egressgateway",
        "istio-proxy",
        "gateways.istio-egressgateway",
    ),
    Component("Cni", "cni", "cni", "DaemonSet", "istio-cni-node", "install-cni", "cni"),
    Component("Ztunnel", "ztunnel", "ztunnel", "DaemonSet", "ztunnel", "istio-proxy", "ztunnel", flat=True),
)
_ON = frozenset({"base", "pilot", "ingressGateways"})
"""Components that are enabled unless an IstioOperator configures them."""


class EnabledComponent(NamedTuple):
    """An enabled component. Each gateway is a separate component.

    `name` is the name of its workload, and `spec` is its settings, whose field path is `path`.
    """

    component: Component
    name: str
    namespace: str
    spec: Plain
    path: str

    @property
    def k8s(self) -> Plain:
        """The k8s settings of the component."""
        settings: Plain = self.spec.get("k8s") or {}
        return settings


def enabled_components(operator: Plain) -> Iterator[EnabledComponent]:
    """Yield the components that an IstioOperator enables, in the order of `COMPONENTS`."""
    for component in COMPONENTS:
        by_values = bool(
            component.field in STANDARD_GATEWAYS and value_at(operator, f"spec.values.{component.values}.enabled")
        )
        for path, spec in _component_specs(operator, component, by_values):
            if by_values or spec.get("enabled") is not False:
                yield EnabledComponent(
                    component,
                    _name(operator, component, spec),
                    str(spec.get("namespace") or system_namespace(operator)),
                    spec,
                    path,
                )


def _component_specs(operator: Plain, component: Component, by_values: bool) -> list[tuple[str, Plain]]:
    """Return the settings of a component's instances, each with its field path."""
    path = f"spec.components.{component.field}"
    specs: Any = value_at(operator, path)
    if specs is None:
        standard = {"name": component.object} if component.field in STANDARD_GATEWAYS else {}
        return [(path, standard)] if by_values or component.field in _ON else []
    if isinstance(specs, list):
        return [(f"{path}[{index}]", spec) for index, spec in enumerate(specs)]
    return [(path, specs)]


def _name(operator: Plain, component: Component, spec: Plain) -> str:
    revision = value_at(operator, "spec.values.revision")
    if component.name == "Pilot" and revision:
        return f"{component.object}-{revision}"
    if component.name == "Ztunnel":
        return str(value_at(operator, "spec.values.ztunnel.resourceName") or component.object)
    return str(spec.get("name") or component.object)


def chart_values(operator: Plain, enabled: EnabledComponent) -> Plain:
    """Return the values for a component's chart. They are the common values and those that follow from its settings."""
    component, spec = enabled.component, enabled.spec
    values: Plain = value_at(operator, "spec.values", {})
    component_values: Plain = {}
    if component.field in STANDARD_GATEWAYS:
        component_values = {"name": enabled.name, "labels": spec.get("label") or {}}
        if ports := value_at(spec, "k8s.service.ports"):
            component_values["ports"] = ports
    for key in ("hub", "tag"):
        if spec.get(key) not in (None, ""):
            component_values[key] = spec[key]
    component_values = {**component_values, **_replicas(component, enabled.k8s)}
    for part in ("limits", "requests"):
        for resource in ("cpu", "memory"):
            if amount := value_at(enabled.k8s, f"resources.{part}.{resource}"):
                component_values = with_value(component_values, ("resources", part, resource), str(amount))
    if component_values:
        path = tuple(component.values.split("."))
        values = with_value(values, path, deep_merge(value_at(values, component.values, {}), component_values))
    return _flatten(values, component.values) if component.flat else values


def _replicas(component: Component, settings: Plain) -> Plain:
    """Return the values for the number of replicas. They affect other objects in addition to the workload."""
    if component.kind != "Deployment":
        return {}
    places = {
        "autoscaleMin": "hpaSpec.minReplicas",
        "autoscaleMax": "hpaSpec.maxReplicas",
        "replicaCount": "replicaCount",
    }
    return {key: value for key, place in places.items() if (value := value_at(settings, place))}


def _flatten(values: Plain, root: str) -> Plain:
    own = values.get(root)
    if not isinstance(own, dict):
        return values
    common = {key: value for key, value in values.items() if not isinstance(value, dict)}
    return {"global": values.get("global") or {}, **common, **own}
