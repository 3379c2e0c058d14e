"""User overrides of injected containers. They are merged over the template's containers with the same names.

An annotation records the overrides for reinjection.
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.inject.annotations import INTERCEPTION_MODE, OVERRIDES, STATUS
from webhook.inject.containers import INIT, VALIDATION, containers, find, find_anywhere, with_container
from webhook.inject.containers import PROXY as PROXY_NAME
from webhook.inject.errors import InjectionError
from webhook.inject.request import InjectionRequest
from webhook.inject.status import injected_before
from webhook.pod.merge import merge
from webhook.pod.normal import without_nulls
from webhook.pod.schema import CONTAINER

Plain = dict[str, Any]
AUTO_IMAGE = "auto"
_FIELDS = ("containers", "initContainers")


def saved(pod: Plain) -> dict[str, list[Plain]]:
    """Return the overrides that an earlier injection recorded. Raise InjectionError if the annotation is invalid."""
    text = ((pod.get("metadata") or {}).get("annotations") or {}).get(OVERRIDES)
    if text is None:
        return {}
    try:
        overrides = msgspec.json.decode(text, type=dict[str, list[dict[str, Any]] | None])
    except msgspec.DecodeError as error:
        raise InjectionError(f"invalid annotation {OVERRIDES}: {error}") from error
    return {field: items for field, items in overrides.items() if items is not None}


def reinserted(pod: Plain) -> Plain:
    """Return the Pod with its missing containers added from the recorded overrides."""
    overrides = saved(pod)
    spec = dict(pod.get("spec") or {})
    for field in _FIELDS:
        missing = [c for c in overrides.get(field) or () if find(c.get("name", ""), containers(pod, field)) is None]
        if missing:
            spec[field] = [*containers(pod, field), *missing]
    return {**pod, "spec": spec}


def reapplied(final: Plain, request: InjectionRequest, template: Plain) -> Plain:
    """Return the Pod with the user's containers merged over the template's containers.

    If the override of a container was recorded, it is the user's container. Otherwise, it is the container in the Pod,
    unless an earlier injection added it.
    """
    original, recorded, before = request.pod, saved(request.pod), injected_before(request.pod)
    overlays: dict[str, list[Plain]] = {}
    for field in _FIELDS:
        for injected in containers(template, field):
            name = injected["name"]
            override = find(name, recorded.get(field) or ())
            if override is None and before is not None and name in (before.get(field) or ()):
                continue
            if override is None:
                override = find(name, containers(original)) if field == "containers" else find_anywhere(original, name)
            if override is None:
                continue
            overlay = {key: value for key, value in override.items() if key != "image" or value != AUTO_IMAGE}
            overlays.setdefault(field, []).append(overlay)
            final = _applied(final, field, overlay)
    if overlays and STATUS not in request.annotations:
        final = _annotated(final, OVERRIDES, msgspec.json.encode(overlays).decode())
    return _adjusted(final, request)


def _applied(pod: Plain, field: str, overlay: Plain) -> Plain:
    present = find(overlay["name"], containers(pod, field))
    if present is None:
        changed = [*containers(pod, field), without_nulls(overlay)]
    else:
        changed = [merge(c, overlay, CONTAINER) if c is present else c for c in containers(pod, field)]
    return {**pod, "spec": {**pod["spec"], field: changed}}


def _annotated(pod: Plain, name: str, value: str) -> Plain:
    metadata = pod.get("metadata") or {}
    return {**pod, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), name: value}}}


def _adjusted(final: Plain, request: InjectionRequest) -> Plain:
    """Return the Pod with the proxy's user and group copied to the init container, if the Pod sets them.

    With TPROXY, the proxy runs as root.
    """
    recorded = [c for items in saved(request.pod).values() for c in items]
    proxy = find(PROXY_NAME, recorded) or find_anywhere(request.pod, PROXY_NAME)
    context = (proxy or {}).get("securityContext") or {}
    user, group = context.get("runAsUser"), context.get("runAsGroup")
    if user is None and group is None:
        return final
    init = find(INIT, containers(final, "initContainers")) or find(VALIDATION, containers(final, "initContainers"))
    if init is None:
        return final
    tproxy = "TPROXY" in (
        request.proxy_config.interception_mode,
        ((final.get("metadata") or {}).get("annotations") or {}).get(INTERCEPTION_MODE),
    )
    if tproxy and user is not None and (sidecar := find_anywhere(final, PROXY_NAME)) is not None:
        final = with_container(
            final, {**sidecar, "securityContext": {**(sidecar.get("securityContext") or {}), "runAsUser": 0}}
        )
    if not tproxy and init["name"] == VALIDATION:
        ids = {key: value for key, value in (("runAsUser", user), ("runAsGroup", group)) if value is not None}
        init = {**init, "securityContext": {**(init.get("securityContext") or {}), **ids}}
    return with_container(final, {**init, "args": _for_user(init.get("args") or [], user)} if user else init)


def _for_user(arguments: list[str], user: int) -> list[str]:
    if "-u" not in arguments[:-1]:
        return arguments
    place = arguments.index("-u") + 1
    return [*arguments[:place], str(user), *arguments[place + 1 :]]
