"""Validation of an IstioOperator, apart from the types of its fields."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from deploy.operator.input_origin import InputOrigin
from deploy.operator.inputs import STANDARD_GATEWAYS, system_namespace
from deploy.operator.schema import check
from deploy.operator.settings_tree import Plain, value_at
from pilot.config.problem import Problem, Severity, error, warning
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.logging.log import parse_levels
from pilot.lib.suggestion import did_you_mean

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[a-z0-9.-]+", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_CHOICES = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "service.type": ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
}
"""The values that Kubernetes allows in fields of `k8s`."""
_PLATFORMS = ("gke", "k3d", "k3s", "microk8s", "minikube", "openshift")
_LOG_LEVELS = ("trace", "debug", "info", "warning", "warn", "error", "critical", "off")
"""The log levels of Envoy."""
_HUB = re.compile(r"[a-zA-Z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*", re.ASCII)


def validate_operator(operator: Plain, origin: InputOrigin) -> list[Problem]:
    """Return the problems of an IstioOperator, which are errors and warnings. Messages suit the origin of fields.

    If fields have wrong types, return only the problems with types.
    """
    wrong = list(check(operator, "IstioOperator", origin))
    if wrong:
        return wrong
    spec = operator.get("spec") or {}
    return [
        *_names(spec),
        *_duplicates(spec),
        *_mesh(spec),
        *_proxies(spec),
        *_ports(spec),
        *_kubernetes(spec),
        *_values(spec.get("values") or {}),
    ]


def revision_fault(revision: str) -> str:
    """Return why a revision is invalid, or "" if it is valid."""
    if _LABEL.fullmatch(revision):
        return ""
    text = f"invalid revision {revision}: expected a DNS label of lower-case letters, digits and hyphens"
    return text + _similar_label(revision)


def _names(spec: Plain) -> Iterator[Problem]:
    revision, hub, tag = spec.get("revision"), spec.get("hub"), spec.get("tag")
    if revision and (fault := revision_fault(revision)):
        yield error("bad-revision", "spec.revision", fault)
    if hub and not _HUB.fullmatch(hub):
        yield error("bad-hub", "spec.hub", f"invalid hub {hub}: expected a registry with an optional path")
    if tag is not None and tag != "" and not _TAG.fullmatch(str(tag)):
        yield error("bad-tag", "spec.tag", f"invalid tag {tag}: expected letters, digits, '.', '_' and '-'")
    if spec.get("namespace") not in (None, "", system_namespace({"spec": spec})):
        yield warning(
            "no-effect",
            "spec.namespace",
            "has no effect: components are installed in values.global.istioNamespace or their own namespace",
        )
    for component in STANDARD_GATEWAYS:
        for index, gateway in enumerate(value_at(spec, f"components.{component}", [])):
            if not _NAME.fullmatch(gateway.get("name") or ""):
                path = f"spec.components.{component}[{index}].name"
                yield error(
                    "bad-name",
                    path,
                    f"invalid name {gateway.get('name')}: expected lower-case letters, digits, '.' and '-'",
                )


def _similar_label(text: str) -> str:
    """Return a hint with the label that results if other characters are replaced by hyphens."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f", such as {label}" if _LABEL.fullmatch(label) else ""


def _duplicates(spec: Plain) -> Iterator[Problem]:
    """Yield an error for each gateway, and each port of a Service, whose name another one has."""
    for kind in STANDARD_GATEWAYS:
        names: set[tuple[str, str]] = set()
        for index, gateway in enumerate(value_at(spec, f"components.{kind}", [])):
            full_name = str(gateway.get("namespace") or ""), str(gateway.get("name"))
            if full_name in names:
                path = f"spec.components.{kind}[{index}].name"
                yield error("duplicate-name", path, f"another gateway has the name {full_name[1]}; rename one")
            names.add(full_name)
    for path, component in _components(spec):
        ports = value_at(component, "k8s.service.ports", [])
        numbers: set[tuple[Any, str]] = set()
        for index, port in enumerate(ports):
            place, number = f"{path}.k8s.service.ports[{index}]", (port.get("port"), port.get("protocol") or "TCP")
            if number in numbers:
                yield error("duplicate-port", f"{place}.port", f"{number[0]} occurs twice; remove one")
            elif len(ports) > 1 and not port.get("name"):
                yield error("missing-field", f"{place}.name", "required, because the Service has several ports")
            numbers.add(number)


def _values(values: Plain) -> Iterator[Problem]:
    """Yield the errors in Helm values that the charts or the programs would refuse, or that Kubernetes would."""
    platform = value_at(values, "global.platform")
    if platform and platform not in _PLATFORMS:
        fix = (
            f"unknown platform {platform}: use one of {', '.join(_PLATFORMS)}{did_you_mean(str(platform), _PLATFORMS)}"
        )
        yield error("bad-value", "spec.values.global.platform", fix)
    level = value_at(values, "global.logging.level")
    try:
        parse_levels(str(level or ""))
    except ValueError as fault:
        yield error("bad-value", "spec.values.global.logging.level", str(fault))
    for name in ("pilot", "gateways.istio-ingressgateway", "gateways.istio-egressgateway"):
        least, most = value_at(values, f"{name}.autoscaleMin"), value_at(values, f"{name}.autoscaleMax")
        if isinstance(least, int) and isinstance(most, int) and least > most:
            yield error(
                "bad-replicas", f"spec.values.{name}.autoscaleMin", f"{least} is more than autoscaleMax, {most}"
            )
    for section, fields in values.items():
        selector = fields.get("nodeSelector") if isinstance(fields, dict) else None
        for key, value in selector.items() if isinstance(selector, dict) else ():
            if isinstance(value, dict):
                path = f"spec.values.{section}.nodeSelector.{key}"
                escaped = f"{key}\\.{next(iter(value), '')}"
                yield error("wrong-type", path, f"expected a string, got a mapping; escape dots in keys: {escaped}")


def _mesh(spec: Plain) -> Iterator[Problem]:
    """Yield the errors in the mesh config, with which the control plane would refuse to start."""
    path = "spec.meshConfig" if spec.get("meshConfig") else "spec.values.meshConfig"
    _, problems = decode_mesh_config([value_at(spec, "values.meshConfig", {})])
    for problem in problems:
        if problem.severity is Severity.ERROR:
            yield error(problem.code, f"{path}.{problem.path}", problem.message)


def _proxies(spec: Plain) -> Iterator[Problem]:
    proxy = value_at(spec, "values.global.proxy", {})
    for name in ("includeIPRanges", "excludeIPRanges"):
        for text in _listed(proxy.get(name)):
            if not _is_range(text):
                yield error(
                    "bad-range",
                    f"spec.values.global.proxy.{name}",
                    f"invalid range {text}: expected CIDR ranges separated by commas, or *",
                )
    for name in ("includeInboundPorts", "excludeInboundPorts"):
        for text in _listed(proxy.get(name)):
            if not (text.isdecimal() and int(text) <= 65535):
                yield error(
                    "bad-port",
                    f"spec.values.global.proxy.{name}",
                    f"invalid port {text}: expected numbers up to 65535 separated by commas, or *",
                )


def _listed(text: Any) -> list[str]:
    return [] if not text or text == "*" else [part.strip() for part in str(text).split(",")]


def _is_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _ports(spec: Plain) -> Iterator[Problem]:
    """Yield an error for each privileged port of a gateway that does not run as root."""
    for component, standard in STANDARD_GATEWAYS.items():
        if value_at(spec, f"values.gateways.{standard}.runAsRoot"):
            continue
        for index, gateway in enumerate(value_at(spec, f"components.{component}", [])):
            for place, port in enumerate(value_at(gateway, "k8s.service.ports", [])):
                path = f"spec.components.{component}[{index}].k8s.service.ports[{place}]"
                yield from _low(port, path, f"{port.get('name')}/" if port.get("name") else "", standard)
    if not value_at(spec, "values.gateways.istio-ingressgateway.runAsRoot"):
        for place, port in enumerate(value_at(spec, "values.gateways.istio-ingressgateway.ingressPorts", [])):
            yield from _low(
                port, f"spec.values.gateways.istio-ingressgateway.ingressPorts[{place}]", "", "istio-ingressgateway"
            )


def _low(port: Plain, path: str, name: str, standard: str) -> Iterator[Problem]:
    number, target = port.get("port"), port.get("targetPort")
    if isinstance(target, str) or not isinstance(number, int):
        return
    bound = target or number
    if bound < 1024 or (not target and number <= 1024):
        advice = f"set targetPort to a port above 1024, or values.gateways.{standard}.runAsRoot=true"
        yield error("low-port", path, f"port {name}{number}: targetPort {bound} requires root: {advice}")


def _kubernetes(spec: Plain) -> Iterator[Problem]:
    """Yield the errors in the Kubernetes settings of components, with which the API server would reject objects."""
    for path, component in _components(spec):
        for field, choices in _CHOICES.items():
            yield from _choice(value_at(component, f"k8s.{field}"), choices, f"{path}.k8s.{field}")
        least, most = (value_at(component, f"k8s.hpaSpec.{field}Replicas") for field in ("min", "max"))
        if least is not None and most is not None and least > most:
            message = f"{least} is more than maxReplicas, {most}"
            yield error("bad-replicas", f"{path}.k8s.hpaSpec.minReplicas", message)
    policy = "global.imagePullPolicy"
    yield from _choice(value_at(spec, f"values.{policy}"), _CHOICES["imagePullPolicy"], f"spec.values.{policy}")
    level = "global.proxy.logLevel"
    first, _, _ = str(value_at(spec, f"values.{level}") or "").partition(",")  # levels of components may follow
    yield from _choice(first, _LOG_LEVELS, f"spec.values.{level}")


def _components(spec: Plain) -> Iterator[tuple[str, Plain]]:
    """Yield the components and gateways, each with its path."""
    for name, component in (spec.get("components") or {}).items():
        if isinstance(component, list):
            for index, gateway in enumerate(component):
                yield f"spec.components.{name}[{index}]", gateway
        elif component:
            yield f"spec.components.{name}", component


def _choice(value: str | None, choices: tuple[str, ...], path: str) -> Iterator[Problem]:
    if value and value not in choices:
        yield error("bad-value", path, f"{value} is not one of {', '.join(choices)}{did_you_mean(value, choices)}")
