"""Redirects application probes to the agent, because the kubelet has no certificate that the mesh trusts.

https://istio.io/latest/docs/ops/configuration/mesh/app-health-check/
"""

from __future__ import annotations

from typing import Any

import msgspec

from pilot.lib.flags import parse_bool
from webhook.inject.annotations import REWRITE_PROBES, STATUS, STATUS_PORT
from webhook.inject.containers import PROXY, containers, find_anywhere, with_container
from webhook.inject.request import InjectionRequest

Plain = dict[str, Any]
PROBERS = "ISTIO_KUBE_APP_PROBERS"
_PROBES = {"readinessProbe": "readyz", "livenessProbe": "livez", "startupProbe": "startupz"}
_HOOKS = {"preStop": "prestopz", "postStart": "poststartz"}
_ACTIONS = ("httpGet", "tcpSocket", "grpc")


def rewrite_probes(pod: Plain, request: InjectionRequest) -> Plain:
    """Return the Pod with its probes and hooks redirected to the agent. The agent receives their original targets."""
    sidecar = find_anywhere(pod, PROXY)
    if sidecar is None or not _is_rewritten(pod["metadata"]["annotations"], request):
        return pod
    agent = request.mesh.default_config.status_port
    if probers := _probers(pod, agent):
        pod = with_container(
            pod,
            {
                **sidecar,
                "env": _with_probers(sidecar.get("env") or [], probers, STATUS in pod["metadata"]["annotations"]),
            },
        )
    port = int(pod["metadata"]["annotations"].get(STATUS_PORT) or agent)
    fields = [field for field in ("containers", "initContainers") if containers(pod, field)]
    return {
        **pod,
        "spec": {**pod["spec"], **{field: [_rewritten(c, port) for c in containers(pod, field)] for field in fields}},
    }


def _is_rewritten(annotations: Plain, request: InjectionRequest) -> bool:
    try:
        return parse_bool(annotations[REWRITE_PROBES])
    except (KeyError, ValueError):
        return bool(request.config.value("sidecarInjectorWebhook", "rewriteAppHTTPProbe"))


def _with_probers(environment: list[Plain], probers: Plain, again: bool) -> list[Plain]:
    """Return the proxy's environment variables with ISTIO_KUBE_APP_PROBERS added. On reinjection, the probers that are
    already recorded take precedence."""
    present = next((e for e in environment if e.get("name") == PROBERS), None) if again else None
    if present is None:
        return [*environment, {"name": PROBERS, "value": msgspec.json.encode(probers, order="sorted").decode()}]
    try:
        recorded = msgspec.json.decode(present.get("value") or "", type=dict[str, Any])
    except msgspec.DecodeError:
        return environment
    merged = {"name": PROBERS, "value": msgspec.json.encode({**probers, **recorded}, order="sorted").decode()}
    return [merged if e is present else e for e in environment]


def _probers(pod: Plain, agent: int) -> Plain:
    """Return the original probe for each path of the agent, with port names resolved.

    Probes with unknown ports are omitted.
    """
    probers: Plain = {}
    for container in (*containers(pod, "initContainers"), *containers(pod)):
        if container.get("name") == PROXY:
            continue
        ports = {p["name"]: p.get("containerPort") for p in container.get("ports") or () if p.get("name")}
        for path, probe, hook in _paths(container):
            if (prober := _prober(probe, ports, agent, hook)) is not None:
                probers[path] = prober
    return probers


def _paths(container: Plain) -> list[tuple[str, Plain, bool]]:
    """Return a tuple for each probe and hook of a container: the agent's path, the probe or hook, and whether it is a
    hook."""
    name, lifecycle = container.get("name"), container.get("lifecycle") or {}
    probes = [
        (f"/app-health/{name}/{path}", container[field], False)
        for field, path in _PROBES.items()
        if container.get(field)
    ]
    return probes + [
        (f"/app-lifecycle/{name}/{path}", lifecycle[field], True)
        for field, path in _HOOKS.items()
        if lifecycle.get(field)
    ]


def _prober(probe: Plain, ports: Plain, agent: int, hook: bool) -> Plain | None:
    action = next((a for a in (_ACTIONS[:2] if hook else _ACTIONS) if probe.get(a) is not None), None)
    if action is None:
        return None
    details = dict(probe[action])
    if action != "grpc":
        port = details.get("port")
        if port == agent:
            return None
        details["port"] = ports.get(port) if isinstance(port, str) else port
        if details["port"] is None:
            return None
    timeout = {} if hook or not probe.get("timeoutSeconds") else {"timeoutSeconds": probe["timeoutSeconds"]}
    return {action: details, **timeout}


def _rewritten(container: Plain, port: int) -> Plain:
    """Return a container with its probes and hooks redirected to the agent, except those that run commands."""
    if container.get("name") == PROXY:
        return container
    changed = dict(container)
    name, lifecycle = container.get("name"), container.get("lifecycle") or {}
    for field, path in _PROBES.items():
        if container.get(field):
            changed[field] = _to_agent(container[field], f"/app-health/{name}/{path}", port, _ACTIONS)
    hooks = {
        f: _to_agent(lifecycle[f], f"/app-lifecycle/{name}/{path}", port, _ACTIONS[:2])
        for f, path in _HOOKS.items()
        if lifecycle.get(f)
    }
    return {**changed, "lifecycle": {**lifecycle, **hooks}} if hooks else changed


def _to_agent(probe: Plain, path: str, port: int, actions: tuple[str, ...]) -> Plain:
    action = next((a for a in actions if probe.get(a) is not None), None)
    if action is None:
        return probe
    get = dict(probe["httpGet"]) if action == "httpGet" else {}
    get.update(path=path, port=port)
    if get.get("scheme") == "HTTPS":
        get["scheme"] = "HTTP"
    return {**{key: value for key, value in probe.items() if key not in actions}, "httpGet": get}
