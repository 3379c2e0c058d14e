"""The containers of a pod, found and put in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PROXY = "istio-proxy"
INIT = "istio-init"
VALIDATION = "istio-validation"
CORE_DUMP = "enable-core-dump"
Plain = dict[str, Any]


def containers(pod: Plain, field: str = "containers") -> list[Plain]:
    """Return the containers of a pod, or its init containers by their field."""
    return (pod.get("spec") or {}).get(field) or []


def find(name: str, found: Iterable[Plain]) -> Plain | None:
    """Return the first container of a name, None where there is none."""
    return next((c for c in found if c.get("name") == name), None)


def find_anywhere(pod: Plain, name: str) -> Plain | None:
    """Return the container of a name, else the init container."""
    return find(name, containers(pod)) or find(name, containers(pod, "initContainers"))


def with_container(pod: Plain, changed: Plain) -> Plain:
    """Return the pod with another container, or init container, in the place of the one of its name."""
    field = "containers" if find(changed["name"], containers(pod)) is not None else "initContainers"
    found = [changed if c.get("name") == changed["name"] else c for c in containers(pod, field)]
    return {**pod, "spec": {**pod["spec"], field: found}}


def first(found: list[Plain], *names: str) -> list[Plain]:
    """Return containers, those of the names before all others and in their order."""
    lead = [c for name in names for c in found if c.get("name") == name]
    return [*lead, *(c for c in found if c.get("name") not in names)]


def last(found: list[Plain], *names: str) -> list[Plain]:
    """Return containers, those of the names after all others and in their order."""
    tail = [c for name in names for c in found if c.get("name") == name]
    return [*(c for c in found if c.get("name") not in names), *tail]


def in_order(pod: Plain, hold: bool) -> Plain:
    """Return the pod with its containers in order. The proxy is the last container, the first one where applications
    wait for it. As an init container it comes first, after what prepares the network; else that comes last, so that it
    does not cut other init containers off, and the check of it first.
    """
    spec = {**pod.get("spec", {})}
    main, init = containers(pod), containers(pod, "initContainers")
    spec["containers"] = first(main, PROXY) if hold else last(main, PROXY)
    if init:
        native = find(PROXY, init) is not None
        spec["initContainers"] = (
            first(init, INIT, VALIDATION, PROXY, CORE_DUMP)
            if native
            else last(first(init, VALIDATION), INIT, CORE_DUMP)
        )
    return {**pod, "spec": spec}
