"""The components of an installation: the chart of each, which of them are wanted, and the values that their charts are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from deploy.operator.inputs import STANDARD_GATEWAYS, system_namespace
from deploy.operator.tree import Plain, at, lay_over, put


class Component(NamedTuple):
    """`name` is the label that its objects have, `field` its field of spec.components. `kind`, `object` and `container` are of the object that
    k8s settings patch. `values` is where among the values its own are; `flat`: its chart has them at the top."""

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
"""Lists of components that are installed where an IstioOperator does not say which."""


class WantedComponent(NamedTuple):
    """A component that is to be there: the gateways are one each. `name` is that of its main object; `said` what spec.components says of it."""

    component: Component
    name: str
    namespace: str
    said: Plain

    @property
    def settings(self) -> Plain:
        """Returns its k8s settings."""
        found: Plain = self.said.get("k8s") or {}
        return found


def wanted(operator: Plain) -> Iterator[WantedComponent]:
    """Yields the components that an IstioOperator switches on, in the order of `COMPONENTS`."""
    for component in COMPONENTS:
        by_values = bool(
            component.field in STANDARD_GATEWAYS and at(operator, f"spec.values.{component.values}.enabled")
        )
        for said in _said(operator, component, by_values):
            if by_values or said.get("enabled") is not False:
                yield WantedComponent(
                    component,
                    _name(operator, component, said),
                    str(said.get("namespace") or system_namespace(operator)),
                    said,
                )


def _said(operator: Plain, component: Component, by_values: bool) -> list[Plain]:
    found: Any = at(operator, f"spec.components.{component.field}")
    if found is None:
        standard = {"name": component.object} if component.field in STANDARD_GATEWAYS else {}
        return [standard] if by_values or component.field in _ON else []
    return found if isinstance(found, list) else [found]


def _name(operator: Plain, component: Component, said: Plain) -> str:
    revision = at(operator, "spec.values.revision")
    if component.name == "Pilot" and revision:
        return f"{component.object}-{revision}"
    if component.name == "Ztunnel":
        return str(at(operator, "spec.values.ztunnel.resourceName") or component.object)
    return str(said.get("name") or component.object)


def chart_values(operator: Plain, chosen: WantedComponent) -> Plain:
    """Returns the values that the chart of a component is given: the common ones, and what its component says that the chart must know."""
    component, said = chosen.component, chosen.said
    values: Plain = at(operator, "spec.values", {})
    own: Plain = {}
    if component.field in STANDARD_GATEWAYS:
        own = {"name": chosen.name, "labels": said.get("label") or {}}
        if ports := at(said, "k8s.service.ports"):
            own["ports"] = ports
    for key in ("hub", "tag"):
        if said.get(key) not in (None, ""):
            own[key] = said[key]
    own = {**own, **_replicas(component, chosen.settings)}
    for part in ("limits", "requests"):
        if cpu := at(chosen.settings, f"resources.{part}.cpu"):
            own = put(own, ("resources", part, "cpu"), str(cpu))
    if own:
        path = tuple(component.values.split("."))
        values = put(values, path, lay_over(at(values, component.values, {}), own))
    return _flattened(values, component.values) if component.flat else values


def _replicas(component: Component, settings: Plain) -> Plain:
    """Returns the numbers of replicas that a chart makes other objects of than the one that they are in."""
    if component.kind != "Deployment":
        return {}
    places = {
        "autoscaleMin": "hpaSpec.minReplicas",
        "autoscaleMax": "hpaSpec.maxReplicas",
        "replicaCount": "replicaCount",
    }
    return {key: found for key, place in places.items() if (found := at(settings, place))}


def _flattened(values: Plain, root: str) -> Plain:
    own = values.get(root)
    if not isinstance(own, dict):
        return values
    common = {key: value for key, value in values.items() if not isinstance(value, dict)}
    return {"global": values.get("global") or {}, **common, **own}
