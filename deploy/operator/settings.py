"""The k8s settings of a component, merged into the objects of its chart as kubectl's strategic merge would do it."""

from __future__ import annotations

from deploy.operator.components import WantedComponent
from deploy.operator.tree import Plain
from webhook.pod.merge import merge
from webhook.pod.schema import POD, read_types

_SERVICE = read_types("ServiceSpec ports:[ServicePort]@port")["ServiceSpec"]
_OF_POD = ("affinity", "nodeSelector", "priorityClassName", "securityContext", "tolerations", "volumes")
_OF_CONTAINER = ("env", "imagePullPolicy", "readinessProbe", "resources", "volumeMounts")


def apply_settings(objects: list[Plain], chosen: WantedComponent) -> list[Plain]:
    """Returns the objects of a component with its k8s settings in those that they are about."""
    settings = {key: value for key, value in chosen.settings.items() if value is not None}
    return [_patched(plain, chosen, settings) for plain in objects] if settings else objects


def _patched(plain: Plain, chosen: WantedComponent, settings: Plain) -> Plain:
    kind, named = plain["kind"], plain["metadata"]["name"] == chosen.name
    if kind == chosen.component.kind and named:
        return _workload(plain, chosen.component.container, settings)
    if kind == "Service" and named:
        return _service(plain, chosen, settings)
    if kind == "HorizontalPodAutoscaler" and named and "hpaSpec" in settings:
        return {**plain, "spec": merge(plain["spec"], settings["hpaSpec"], None)}
    if kind == "PodDisruptionBudget" and named and "podDisruptionBudget" in settings:
        return {**plain, "spec": _budget(merge(plain["spec"], settings["podDisruptionBudget"], None))}
    return plain


def _workload(plain: Plain, container: str, settings: Plain) -> Plain:
    pod: Plain = {"spec": {key: settings[key] for key in _OF_POD if key in settings}}
    if inner := {key: settings[key] for key in _OF_CONTAINER if key in settings}:
        pod["spec"]["containers"] = [{"name": container, **inner}]
    if "podAnnotations" in settings:
        pod["metadata"] = {"annotations": settings["podAnnotations"]}
    spec: Plain = {**plain["spec"], "template": merge(plain["spec"]["template"], pod, POD)}
    if "replicaCount" in settings:
        spec["replicas"] = settings["replicaCount"]
    if "strategy" in settings:
        spec["strategy"] = merge(spec.get("strategy") or {}, settings["strategy"], None)
    return {**plain, "spec": spec}


def _service(plain: Plain, chosen: WantedComponent, settings: Plain) -> Plain:
    found = plain
    if "serviceAnnotations" in settings:
        annotations = merge(plain["metadata"].get("annotations") or {}, settings["serviceAnnotations"], None)
        found = {**found, "metadata": {**plain["metadata"], "annotations": annotations}}
    said: Plain = settings.get("service") or {}
    if chosen.component.name != "Pilot":  # the chart of gateways was given the ports
        said = {key: value for key, value in said.items() if key != "ports"}
    return {**found, "spec": merge(plain["spec"], said, _SERVICE)} if said else found


def _budget(spec: Plain) -> Plain:
    """Returns the specification of a budget with one of the two limits that exclude each other: the one that a user can only have set."""
    return (
        {key: value for key, value in spec.items() if key != "minAvailable"}
        if "maxUnavailable" in spec and "minAvailable" in spec
        else spec
    )
