"""Finds and orders the containers of a Pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PROXY = "istio-proxy"
INIT = "istio-init"
VALIDATION = "istio-validation"
CORE_DUMP = "enable-core-dump"
Plain = dict[str, Any]


def containers(pod: Plain, field: str = "containers") -> list[Plain]:
    """Return the containers in a field of the Pod's spec."""
    return (pod.get("spec") or {}).get(field) or []


def find(name: str, candidates: Iterable[Plain]) -> Plain | None:
    """Return the first container with a name, or None if there is none."""
    return next((c for c in candidates if c.get("name") == name), None)


def find_anywhere(pod: Plain, name: str) -> Plain | None:
    """Return the container or init container with a name, or None if there is none."""
    return find(name, containers(pod)) or find(name, containers(pod, "initContainers"))


def with_container(pod: Plain, changed: Plain) -> Plain:
    """Return the Pod with the container or init container of the same name replaced by `changed`."""
    field = "containers" if find(changed["name"], containers(pod)) is not None else "initContainers"
    replaced = [changed if c.get("name") == changed["name"] else c for c in containers(pod, field)]
    return {**pod, "spec": {**pod["spec"], field: replaced}}


def first(items: list[Plain], *names: str) -> list[Plain]:
    """Return the containers with those in `names` moved to the start, in the order of `names`."""
    lead = [c for name in names for c in items if c.get("name") == name]
    return [*lead, *(c for c in items if c.get("name") not in names)]


def last(items: list[Plain], *names: str) -> list[Plain]:
    """Return the containers with those in `names` moved to the end, in the order of `names`."""
    tail = [c for name in names for c in items if c.get("name") == name]
    return [*(c for c in items if c.get("name") not in names), *tail]


def in_order(pod: Plain, hold: bool) -> Plain:
    """Return the Pod with its containers in the required order.

    The proxy is the last container, or the first if applications wait for it. If it is a native sidecar, it follows
    istio-init and istio-validation. Otherwise, istio-validation is the first init container, and istio-init is the
    last, so that it does not block the traffic of the other init containers.
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
