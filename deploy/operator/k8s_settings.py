"""Applies the k8s settings of a component to the objects of its chart, as a strategic merge patch would."""

from __future__ import annotations

from deploy.operator.components import EnabledComponent
from deploy.operator.settings_tree import Plain
from webhook.pod.merge import merge
from webhook.pod.schema import POD, read_types

_SERVICE = read_types("ServiceSpec ports:[ServicePort]@port")["ServiceSpec"]
_OF_POD = ("affinity", "nodeSelector", "priorityClassName", "securityContext", "tolerations", "volumes")
_OF_CONTAINER = ("env", "imagePullPolicy", "readinessProbe", "resources", "volumeMounts")


def apply_k8s_settings(objects: list[Plain], enabled: EnabledComponent) -> list[Plain]:
    """Return the objects of a component with its k8s settings applied."""
    settings = {key: value for key, value in enabled.k8s.items() if value is not None}
    return [_patch(plain, enabled, settings) for plain in objects] if settings else objects


def _patch(plain: Plain, enabled: EnabledComponent, settings: Plain) -> Plain:
    kind, is_main = plain["kind"], plain["metadata"]["name"] == enabled.name
    if kind == enabled.component.kind and is_main:
        return _workload(plain, enabled.component.container, settings)
    if kind == "Service" and is_main:
        return _service(plain, enabled, settings)
    if kind == "HorizontalPodAutoscaler" and is_main and "hpaSpec" in settings:
        return {**plain, "spec": merge(plain["spec"], settings["hpaSpec"], None)}
    if kind == "PodDisruptionBudget" and is_main and "podDisruptionBudget" in settings:
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


def _service(plain: Plain, enabled: EnabledComponent, settings: Plain) -> Plain:
    service = plain
    if "serviceAnnotations" in settings:
        annotations = merge(plain["metadata"].get("annotations") or {}, settings["serviceAnnotations"], None)
        service = {**service, "metadata": {**plain["metadata"], "annotations": annotations}}
    settings_of_service: Plain = settings.get("service") or {}
    if enabled.component.name != "Pilot":  # a gateway's chart has the ports in its values
        settings_of_service = {key: value for key, value in settings_of_service.items() if key != "ports"}
    return {**service, "spec": merge(plain["spec"], settings_of_service, _SERVICE)} if settings_of_service else service


def _budget(spec: Plain) -> Plain:
    """Return the spec of a PodDisruptionBudget with only one of its two exclusive limits.

    Only users set maxUnavailable, so it takes precedence.
    """
    return (
        {key: value for key, value in spec.items() if key != "minAvailable"}
        if "maxUnavailable" in spec and "minAvailable" in spec
        else spec
    )
