"""Answers requests to /inject, which are admission reviews of Pods. The answer contains a patch that adds the proxy."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from pilot.config.mesh.mesh_config import MeshConfig
from webhook.inject.annotations import PROXY_CONFIG
from webhook.inject.config import InjectorConfig
from webhook.inject.decision import is_injected
from webhook.inject.errors import InjectionError
from webhook.inject.injection import inject, refuse_wrong
from webhook.inject.owner import owner_of
from webhook.inject.proxy_config import ProxyConfigObject, effective
from webhook.inject.request import PROXY_ID, InjectionRequest
from webhook.pod.json_patch import differences
from webhook.pod.normal import ShapeError, normalize, without_nulls
from webhook.pod.schema import POD
from webhook.server.path import environment_of
from webhook.server.review import AdmissionResponse, AdmissionReview, ReviewError, decode_object, decode_pod_head

Plain = dict[str, Any]
REFUSALS = (InjectionError, ReviewError, ShapeError)


class InjectionSettings(NamedTuple):
    """The settings that apply to all Pods.

    If `resets_users` is set, a user that the platform has set in all containers is ignored.
    """

    config: InjectorConfig
    mesh: MeshConfig
    resets_users: bool = False
    revision: str = ""
    compliance_policy: str = ""


class PodFacts(NamedTuple):
    """The control plane's state that the injection of one Pod depends on.

    native: Whether the proxy runs as a native sidecar.
    proxy_configs: The ProxyConfig objects that may apply to the Pod.
    uid, gid: The proxy's user and group ID.
    """

    native: bool = False
    proxy_configs: tuple[ProxyConfigObject, ...] = ()
    uid: int = PROXY_ID
    gid: int = PROXY_ID


def answer_pod(
    review: AdmissionReview, path: str, settings: InjectionSettings, facts: PodFacts
) -> AdmissionResponse | None:
    """Return the response to an admission review, or None if the Pod is not injected.

    Raise InjectionError, ReviewError or ShapeError if the Pod is rejected.
    """
    assert review.request is not None
    submitted = decode_object(review.request.object)
    pod = without_nulls(submitted)
    normalize(pod, POD)
    metadata = {key: value for key, value in (pod.get("metadata") or {}).items() if key != "managedFields"}
    if not metadata.get("namespace"):
        metadata["namespace"] = review.request.namespace
    pod, base = (
        {**pod, "metadata": metadata},
        {**submitted, "metadata": {**(submitted.get("metadata") or {}), **metadata}},
    )
    base["metadata"].pop("managedFields", None)
    if not is_injected(pod, settings.config.written):
        return None
    decode_pod_head(review.request.object)  # the control plane has used the defaults if this fails
    final = inject(_request(pod, environment_of(path), settings, facts))
    return AdmissionResponse(True, patch=msgspec.json.encode(list(differences(base, final))))


def _request(pod: Plain, environment: dict[str, str], settings: InjectionSettings, facts: PodFacts) -> InjectionRequest:
    metadata, mesh = pod["metadata"], settings.mesh
    annotations = metadata.get("annotations") or {}
    refuse_wrong(annotations)
    proxy_config = effective(
        mesh.default_config,
        facts.proxy_configs,
        mesh.root_namespace,
        metadata["namespace"],
        metadata.get("labels") or {},
        annotations.get(PROXY_CONFIG),
    )
    pod = without_platform_users(pod) if settings.resets_users else pod
    return InjectionRequest(
        pod,
        owner_of(pod),
        settings.config,
        mesh,
        proxy_config,
        settings.revision,
        environment,
        facts.native,
        facts.uid,
        facts.gid,
        settings.compliance_policy,
    )


def without_platform_users(pod: Plain) -> Plain:
    """Return the Pod. If the proxy container has the same user as an application container, the proxy's user and group
    are removed.

    In that case, the platform set the user.
    """
    spec = pod.get("spec") or {}
    users = {
        c.get("name"): (c.get("securityContext") or {}).get("runAsUser")
        for c in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    }
    others = {
        user
        for name, user in users.items()
        if name not in ("istio-proxy", "istio-init", "istio-validation") and user is not None
    }
    proxy_user = users.get("istio-proxy")
    if proxy_user is None or proxy_user not in others:
        return pod
    return {
        **pod,
        "spec": {**spec, **{f: [_reset(c) for c in spec[f]] for f in ("containers", "initContainers") if spec.get(f)}},
    }


def _reset(container: Plain) -> Plain:
    if container.get("name") != "istio-proxy":
        return container
    context = {k: v for k, v in container["securityContext"].items() if k not in ("runAsUser", "runAsGroup")}
    return {**container, "securityContext": context}
