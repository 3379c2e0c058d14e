"""The proxies in the Pods of a cluster: their nodes, as their agents build them, one for each workload."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.envoy.envoy_bootstrap import build_node
from pilot.agent.envoy.proxy_bootstrap import build_agent_node, build_locality
from pilot.agent.proxy.effective_config import pod_sources
from pilot.agent.proxy.proxy_context import META, META_JSON, TYPES, build_proxy_context
from pilot.mesh.model.proxy import NodeType
from pilot.settings.parse import load_sections

Plain = dict[str, Any]
_CONTAINER = "istio-proxy"
_REFERENCE = re.compile(r"\$\(([\w.-]+)\)")
_KEY = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")


class WorkloadProxy(NamedTuple):
    """The proxy in one Pod of a workload. `pods` is the number of the workload's Pods with a proxy."""

    namespace: str
    service_account: str
    node: base_pb2.Node
    pods: int

    @property
    def label(self) -> str:
        return str(self.node.id.split("~")[2])


class WorkloadProxies(NamedTuple):
    """One proxy of each workload, and the Pods whose proxy is unknown, with the reason."""

    proxies: list[WorkloadProxy]
    skipped: dict[str, str]


def workload_proxies(pods: Iterable[Plain]) -> WorkloadProxies:
    """Return one proxy of each workload. Pods of one controller belong to one workload."""
    workloads: dict[tuple[str, str, str], list[Plain]] = {}
    for pod in pods:
        if _proxy_container(pod) is not None and (pod.get("status") or {}).get("phase") == "Running":
            workloads.setdefault(_workload(pod), []).append(pod)
    result = WorkloadProxies([], {})
    for members in workloads.values():
        metadata, spec = members[0]["metadata"], members[0]["spec"]
        try:
            node = build_pod_node(members[0])
        except (ValueError, json_format.ParseError) as error:
            result.skipped[f"{metadata['name']}.{metadata.get('namespace', '')}"] = str(error)
            continue
        account = str(spec.get("serviceAccountName") or "default")
        result.proxies.append(WorkloadProxy(str(metadata.get("namespace", "")), account, node, len(members)))
    return result


def build_pod_node(pod: Plain) -> base_pb2.Node:
    """Return the node of the proxy in a Pod. Raise ValueError, with a message for the user, if it is invalid."""
    container, metadata = _proxy_container(pod) or {}, pod["metadata"]
    environ = _environment(container, pod)
    arguments = [_expanded(str(text), environ) for text in container.get("args") or ()]
    kind = arguments[1] if len(arguments) > 1 and not arguments[1].startswith("-") else "sidecar"
    if kind == NodeType.ZTUNNEL:
        return _ztunnel_node(environ)
    if kind not in TYPES:
        raise ValueError(f"the container {_CONTAINER} runs a proxy of the unknown type {kind!r}")
    settings = load_sections(AgentSettings(), arguments[2:], environ).settings
    annotations = dict(metadata.get("annotations") or {})
    sources = pod_sources(settings.pod.proxy_config, annotations)
    labels = dict(metadata.get("labels") or {})
    proxy = build_proxy_context(kind, settings, environ, sources, labels, annotations)
    if "AUTO_REGISTER_GROUP" in proxy.metadata:
        raise ValueError("istiod would register a workload for it")
    plain = {**build_node(build_agent_node(proxy, settings)), "locality": build_locality(proxy.labels)}
    return json_format.ParseDict(plain, base_pb2.Node())


def _ztunnel_node(environ: Mapping[str, str]) -> base_pb2.Node:
    """Return the node that a ztunnel sends.

    https://github.com/istio/ztunnel/blob/master/src/xds/client.rs
    """
    name, namespace, ip = (environ.get(key, "") for key in ("POD_NAME", "POD_NAMESPACE", "INSTANCE_IP"))
    metadata: Plain = {
        "NAME": name,
        "NAMESPACE": namespace,
        "INSTANCE_IPS": ip,
        "NODE_NAME": environ.get("NODE_NAME", ""),
    }
    metadata |= {key.removeprefix(META): value for key, value in environ.items() if key.startswith(META)}
    for key, value in environ.items():
        if key.startswith(META_JSON):
            with contextlib.suppress(ValueError):  # it logs an error
                metadata[key.removeprefix(META_JSON)] = json.loads(value)
    domain = f"{namespace}.svc.cluster.local"
    plain = {"id": f"{NodeType.ZTUNNEL}~{ip}~{name}.{namespace}~{domain}", "metadata": metadata}
    return json_format.ParseDict(plain, base_pb2.Node())


def _proxy_container(pod: Plain) -> Mapping[str, Any] | None:
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    is_proxy = (one for one in containers if one.get("name") == _CONTAINER and (one.get("args") or [""])[0] == "proxy")
    return next(is_proxy, None)


def _workload(pod: Plain) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    controller: Mapping[str, Any] = next(
        (one for one in metadata.get("ownerReferences") or () if one.get("controller")), {}
    )
    kind, name = controller.get("kind", "Pod"), controller.get("name", metadata["name"])
    return metadata.get("namespace", ""), kind, name


def _environment(container: Mapping[str, Any], pod: Plain) -> dict[str, str]:
    """Return the variables of a container. Those from Secrets, ConfigMaps and limits are omitted."""
    environ: dict[str, str] = {}
    for one in container.get("env") or ():
        path = ((one.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if path:
            environ[one["name"]] = _field(pod, path)
        elif "valueFrom" not in one:
            environ[one["name"]] = _expanded(str(one.get("value") or ""), environ)
    return environ


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    """Return a text in which $(NAME) is replaced with variables that are defined."""
    return _REFERENCE.sub(lambda match: environ.get(match[1], match[0]), text)


def _field(pod: Plain, path: str) -> str:
    """Return a field of a Pod as a variable has it: addresses are separated by commas."""
    if match := _KEY.match(path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    if path == "status.podIPs":
        return ",".join(one["ip"] for one in (pod.get("status") or {}).get("podIPs") or ())
    value: Any = pod
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return str(value or "")
