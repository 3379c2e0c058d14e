"""Applies the k8s settings of a component to the objects of its chart, as a strategic merge patch would."""

from __future__ import annotations

from collections.abc import Iterable

from deploy.operator.components import EnabledComponent
from deploy.operator.settings_tree import Plain, value_at
from pilot.config.problem import Problem, warning
from webhook.pod.merge import merge
from webhook.pod.schema import POD, read_types

_SERVICE = read_types("ServiceSpec ports:[ServicePort]@port")["ServiceSpec"]
_OF_POD = ("affinity", "nodeSelector", "priorityClassName", "securityContext", "tolerations", "volumes")
_OF_CONTAINER = ("env", "imagePullPolicy", "readinessProbe", "resources", "volumeMounts")


def apply_k8s_settings(objects: list[Plain], enabled: EnabledComponent) -> list[Plain]:
    """Return the objects of a component with its k8s settings applied."""
    settings = {key: value for key, value in enabled.k8s.items() if value is not None}
    return [_patch(plain, enabled, settings) for plain in objects] if settings else objects


def find_overridden_replicas(objects: Iterable[Plain], enabled: EnabledComponent) -> Problem | None:
    """Return a warning if a HorizontalPodAutoscaler changes the number of replicas of a component."""
    count, values = enabled.k8s.get("replicaCount"), enabled.component.values
    scaling = [
        value_at(plain, "spec", {})
        for plain in objects
        if plain["kind"] == "HorizontalPodAutoscaler" and value_at(plain, "metadata.name") == enabled.name
    ]
    if count is None or not scaling:
        return None
    least, most = value_at(scaling[0], "minReplicas", 1), value_at(scaling[0], "maxReplicas")
    if least == count:
        return None
    return warning(
        "no-effect",
        f"{enabled.path}.k8s.replicaCount",
        f"the HorizontalPodAutoscaler {enabled.name} replaces {count} by a number from {least} to {most}; "
        f"set values.{values}.autoscaleEnabled: false, or k8s.hpaSpec.minReplicas: {count} instead",
    )


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
