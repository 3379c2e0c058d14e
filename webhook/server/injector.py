"""/inject: answers Pod reviews with a patch that adds the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.lib.logging.log import scope
from webhook.inject.annotations import PROXY_CONFIG
from webhook.inject.config import ConfigError, InjectorConfig, decode_config
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
from webhook.server.review import AdmissionResponse, AdmissionReview, ReviewError, decode_object

Plain = dict[str, Any]
DEFAULT_CLUSTER = "Kubernetes"
_log = scope("webhook")


class InjectionContext(NamedTuple):
    """The control plane's state that injection depends on.

    The arguments of `native` are a Pod's cluster and node. The node is "" if the Pod is not scheduled yet. It returns
    whether the proxy runs as a native sidecar. `proxy_configs` returns the ProxyConfig objects, and `proxy_ids` the
    proxy's user and group ID in a namespace. With `resets_users`, a user that the platform has set in all containers is
    ignored.
    """

    mesh: Callable[[], MeshConfig]
    native: Callable[[str, str], bool] = lambda cluster, node: False
    proxy_configs: Callable[[], Iterable[ProxyConfigObject]] = tuple
    proxy_ids: Callable[[str], tuple[int, int]] = lambda namespace: (PROXY_ID, PROXY_ID)
    resets_users: bool = False
    revision: str = ""
    compliance_policy: str = ""


class Injector:
    """Answers Pod reviews with the current configuration.

    `config` is None until a configuration is loaded. The callbacks in `on_load` run after each change.
    """

    def __init__(self, context: InjectionContext) -> None:
        self._context = context
        self._loading = asyncio.Lock()
        self.config: InjectorConfig | None = None
        self.on_load: list[Callable[[], None]] = []

    def load(self, config: str, values: str) -> bool:
        """Load a configuration from the values of its ConfigMap keys. If it is invalid, keep the previous one and
        return False."""
        try:
            self.config = decode_config(config, values)
        except ConfigError as error:
            _log.error("invalid injector configuration, keeping the previous one: %s", error)
            return False
        _log.info("loaded the injector configuration with templates %s", ", ".join(self.config.templates))
        return True

    async def load_in_thread(self, config: str, values: str) -> None:
        """Call `load` in a thread, because the compilation of templates takes tens of milliseconds.

        Calls take effect in order.
        """
        async with self._loading:
            if await asyncio.to_thread(self.load, config, values):
                for callback in self.on_load:
                    callback()

    def answer(self, review: AdmissionReview, path: str) -> AdmissionResponse | None:
        """Return the response to a review, or None if the Pod is not injected.

        Raises InjectionError, ReviewError or ShapeError if the Pod is rejected.
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
        config = self.config
        if config is None:
            raise InjectionError("the injector has no configuration")
        if not is_injected(pod, config.written):
            return None
        final = inject(self._request(pod, config, environment_of(path)))
        return AdmissionResponse(True, patch=msgspec.json.encode(list(differences(base, final))))

    def _request(self, pod: Plain, config: InjectorConfig, environment: dict[str, str]) -> InjectionRequest:
        context, metadata = self._context, pod["metadata"]
        namespace, annotations = metadata["namespace"], metadata.get("annotations") or {}
        refuse_wrong(annotations)
        mesh = context.mesh()
        cluster = (
            environment.get("ISTIO_META_CLUSTER_ID")
            or config.value("global", "multiCluster", "clusterName")
            or DEFAULT_CLUSTER
        )
        objects, labels = context.proxy_configs(), metadata.get("labels") or {}
        proxy_config = effective(
            mesh.default_config, objects, mesh.root_namespace, namespace, labels, annotations.get(PROXY_CONFIG)
        )
        native = context.native(cluster, (pod.get("spec") or {}).get("nodeName") or "")
        uid, gid = context.proxy_ids(namespace)
        pod = without_platform_users(pod) if context.resets_users else pod
        return InjectionRequest(
            pod,
            owner_of(pod),
            config,
            mesh,
            proxy_config,
            context.revision,
            environment,
            native,
            uid,
            gid,
            context.compliance_policy,
        )


def without_platform_users(pod: Plain) -> Plain:
    """Return the Pod without the user of the proxy container if an application has the same user.

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


REFUSALS = (InjectionError, ReviewError, ShapeError)
