"""Compares the Pods that the reference has injected with what this control plane's webhook makes of their owners."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import yaml

from pilot.config.kinds.istio import PROXY_CONFIG
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.kube.api_errors import NotFound
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.shadow.cluster_snapshot import ShadowMesh
from pilot.shadow.pod_differences import STATUS, pod_differences
from webhook.defaults.injector_config import default_config
from webhook.inject.annotations import PROXY_CONFIG as PROXY_CONFIG_ANNOTATION
from webhook.inject.config import ConfigError, InjectorConfig
from webhook.inject.errors import InjectionError
from webhook.inject.injection import inject
from webhook.inject.owner import owner_of
from webhook.inject.proxy_config import ProxyConfigObject, effective
from webhook.inject.request import InjectionRequest

Plain = dict[str, Any]
MOST_OWNERS = 2000
"""Maximum number of owners that are read."""
_HASH = "pod-template-hash"
_IMAGE = re.compile(r"^spec\.(initContainers|containers)\[[^]]*\]\.image$")
_REVISION = "istio.io/rev"
"""Annotation of injected Pods: the revision of the control plane that injected them."""
_LABEL = re.compile(r"\[[^\[\]]*\]")


class InjectionDifference(NamedTuple):
    """A field that differs in Pods of some owners. The verdict is "intended" for images, which contain the agent."""

    verdict: str
    path: str
    pods: int
    example: str
    reference: Any
    pyistiod: Any


class InjectionReport(NamedTuple):
    """The result: the numbers of owners whose Pods were compared and are equal. `skipped` maps owners to reasons."""

    owners: int
    equal: int
    differences: list[InjectionDifference]
    skipped: dict[str, str]


async def compare_injection(
    client: ObjectClient, mesh: ShadowMesh, pods: Iterable[Plain], namespace: str, revision: str
) -> InjectionReport:
    """Compare one Pod of each owner that the revision has injected. Only GET requests are sent."""
    suffix = f"-{revision}" if revision not in ("", "default") else ""
    name = f"istio-sidecar-injector{suffix}"
    written = await client.get(ResourceKey(VersionedKind("v1", "ConfigMap"), namespace, name))
    try:
        values = yaml.safe_load((written or {}).get("data", {}).get("values", "")) or {}
        config = default_config(values)
    except (ConfigError, yaml.YAMLError) as error:
        return InjectionReport(0, 0, [], {f"ConfigMap {namespace}/{name}": str(error)})
    revision = revision or "default"
    settings = _Settings(config, mesh_config(mesh.mesh), _proxy_configs(mesh), revision)
    differing: dict[str, dict[str, InjectionDifference]] = {}
    skipped, owners, equal = dict[str, str](), 0, 0
    others = Counter[str]()
    for pod in _one_of_each_owner(pods):
        if (injector := _injector(pod)) not in ("", revision):
            others[injector] += 1
            continue
        label = f"{pod['metadata'].get('namespace', '')}/{pod['metadata'].get('name', '')}"
        try:
            template = await _template(client, pod)
            injected = _injected(template, pod, settings)
        except (NotFound, InjectionError, ValueError) as error:
            skipped[label] = str(error)
            continue
        owners += 1
        fields = list(pod_differences(injected, pod))
        equal += not fields
        for path, reference, derived in fields:
            verdict = "intended" if _IMAGE.match(path) else "unexplained"
            one = InjectionDifference(verdict, _LABEL.sub("[]", path), 1, f"{label} {path}", reference, derived)
            differing.setdefault(one.path, {}).setdefault(label, one)
    for other, number in sorted(others.items()):
        workloads = "1 workload" if number == 1 else f"{number} workloads"
        skipped[f"{workloads} of the revision {other}"] = f"-r {other} compares them with its control plane"
    differences = [next(iter(rows.values()))._replace(pods=len(rows)) for rows in differing.values()]
    differences.sort(key=lambda one: (one.verdict == "intended", one.path))
    return InjectionReport(owners, equal, differences, skipped)


class _Settings(NamedTuple):
    """The settings of the webhook."""

    config: InjectorConfig
    mesh: MeshConfig
    proxy_configs: tuple[ProxyConfigObject, ...]
    revision: str


def _proxy_configs(mesh: ShadowMesh) -> tuple[ProxyConfigObject, ...]:
    return tuple(ProxyConfigObject.from_row(row) for _, row in PROXY_CONFIG.table(mesh.mesh).rows())


def _controller(pod: Plain) -> Mapping[str, Any] | None:
    return next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), None)


def _injector(pod: Plain) -> str:
    """Return the revision of the control plane that has injected a Pod, or "" if it is unknown."""
    return str((pod["metadata"].get("annotations") or {}).get(_REVISION, ""))


def _one_of_each_owner(pods: Iterable[Plain]) -> list[Plain]:
    """Return an injected Pod of each owner."""
    chosen: dict[tuple[str, str, str], Plain] = {}
    for pod in pods:
        controller = _controller(pod)
        if controller is not None and STATUS in (pod["metadata"].get("annotations") or {}):
            key = (pod["metadata"].get("namespace", ""), controller["kind"], controller["name"])
            chosen.setdefault(key, pod)
    return list(chosen.values())[:MOST_OWNERS]


async def _template(client: ObjectClient, pod: Plain) -> Plain:
    """Return the Pod template of a Pod's owner. Raise ValueError if there is none."""
    controller = _controller(pod) or {}
    kind = VersionedKind(controller.get("apiVersion", ""), controller.get("kind", ""))
    owner = await client.get(ResourceKey(kind, pod["metadata"]["namespace"], controller.get("name", "")))
    template = ((owner or {}).get("spec") or {}).get("template")
    if not template:
        raise ValueError(f"{kind.name} {controller.get('name', '')} has no Pod template")
    return dict(template)


def _injected(template: Plain, pod: Plain, settings: _Settings) -> Plain:
    """Return the Pod that the webhook makes of a template. Raise InjectionError or ValueError if it rejects it."""
    metadata, real = dict(template.get("metadata") or {}), pod["metadata"]
    labels = dict(metadata.get("labels") or {})
    labels |= {_HASH: real["labels"][_HASH]} if _HASH in (real.get("labels") or {}) else {}
    metadata |= {name: real[name] for name in ("namespace", "generateName", "ownerReferences") if name in real}
    submitted = {"metadata": metadata | {"labels": labels}, "spec": template["spec"]}
    mesh = settings.mesh
    override = (metadata.get("annotations") or {}).get(PROXY_CONFIG_ANNOTATION)
    config = effective(
        mesh.default_config, settings.proxy_configs, mesh.root_namespace, real["namespace"], labels, override
    )
    native = any(c.get("name") == "istio-proxy" for c in pod["spec"].get("initContainers") or ())
    request = InjectionRequest(
        submitted, owner_of(submitted), settings.config, mesh, config, settings.revision, native=native
    )
    return inject(request)
