"""The files that a workload outside Kubernetes needs to join the mesh, from a WorkloadGroup and the mesh config."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from deploy.operator.settings_tree import deep_merge
from pilot.cli.ctl.client import CommandError
from pilot.lib.labels import canonical_service

Plain = dict[str, Any]
PROXY_CONFIG = "proxy.istio.io/config"
_EXCLUDED_PORTS = ("22", "15090", "15021")
"""SSH, so that the machine remains reachable, and the ports of Envoy for metrics and readiness."""
_STATUS_PORT = 15020
_CANONICAL_NAME, _CANONICAL_REVISION = "service.istio.io/canonical-name", "service.istio.io/canonical-revision"


class VmOptions(NamedTuple):
    """The options of the files. `revision` is "" for the default one, and so are unknown addresses."""

    system: str
    revision: str
    cluster_id: str
    internal_ip: str
    external_ip: str
    autoregister: bool
    capture_dns: bool

    @property
    def host(self) -> str:
        """Return the host of the control plane."""
        return f"istiod{f'-{self.revision}' if self.revision else ''}.{self.system}.svc"


class VmWorkload(NamedTuple):
    """A WorkloadGroup: its name and namespace, its annotations, and the template of its workloads."""

    name: str
    namespace: str
    annotations: tuple[Mapping[str, str], ...]
    labels: Mapping[str, str]
    account: str
    network: str
    ports: Mapping[str, int]
    probe: Plain | None


def read_group(group: Plain) -> VmWorkload:
    """Return the workload of a WorkloadGroup. Raise CommandError if it has no name and namespace."""
    metadata, spec = group.get("metadata") or {}, group.get("spec") or {}
    if not (metadata.get("name") and metadata.get("namespace")):
        raise CommandError("the WorkloadGroup has no name or no namespace")
    own, template = spec.get("metadata") or {}, spec.get("template") or {}
    return VmWorkload(
        str(metadata["name"]),
        str(metadata["namespace"]),
        (metadata.get("annotations") or {}, own.get("annotations") or {}),
        {**(own.get("labels") or {}), **(template.get("labels") or {})},
        str(template.get("serviceAccount") or "default"),
        str(template.get("network") or ""),
        template.get("ports") or {},
        spec.get("probe"),
    )


def proxy_config(workload: VmWorkload, mesh: Plain, options: VmOptions) -> Plain:
    """Return the proxy config of the workload, which is that of the mesh with annotations and metadata."""
    config = mesh.get("defaultConfig") or {}
    if options.revision:
        config = {"discoveryAddress": f"{options.host}:15012", **config}
    for own in workload.annotations:
        config = deep_merge(config, _annotation(own))
    probe = {"readinessProbe": workload.probe} if workload.probe else {}
    metadata = _metadata(workload, mesh, config, options)
    return {**config, **probe, "proxyMetadata": {**(config.get("proxyMetadata") or {}), **metadata}}


def _annotation(own: Mapping[str, str]) -> Plain:
    try:
        config = yaml.safe_load(own.get(PROXY_CONFIG, "")) or {}
    except yaml.YAMLError as error:
        raise CommandError(f"the annotation {PROXY_CONFIG} is not YAML: {error}") from error
    if not isinstance(config, dict):
        raise CommandError(f"the annotation {PROXY_CONFIG} is no mapping")
    return config


def _metadata(workload: VmWorkload, mesh: Plain, config: Plain, options: VmOptions) -> dict[str, str]:
    service, revision = canonical_service(workload.labels, workload.name)
    labels = {**workload.labels, _CANONICAL_NAME: service, _CANONICAL_REVISION: revision}
    ports = [{"name": name, "containerPort": port} for name, port in sorted(workload.ports.items())]
    return {
        "CANONICAL_SERVICE": service,
        "CANONICAL_REVISION": revision,
        "POD_NAMESPACE": workload.namespace,
        "SERVICE_ACCOUNT": workload.account,
        "TRUST_DOMAIN": str(mesh.get("trustDomain") or ""),
        "ISTIO_META_CLUSTER_ID": options.cluster_id,
        "ISTIO_META_MESH_ID": str(config.get("meshId") or ""),
        "ISTIO_META_NETWORK": workload.network,
        "ISTIO_META_WORKLOAD_NAME": workload.name,
        "ISTIO_METAJSON_LABELS": _compact(labels),
        **({"ISTIO_META_POD_PORTS": _compact(ports)} if ports else {}),
        **({"ISTIO_META_DNS_CAPTURE": "true"} if options.capture_dns else {}),
        **({"ISTIO_META_AUTO_REGISTER_GROUP": workload.name} if options.autoregister else {}),
    }


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=isinstance(value, dict))


def cluster_env(workload: VmWorkload, config: Plain, options: VmOptions) -> str:
    """Return the content of cluster.env: the environment of the agent, quoted for a shell."""
    status_port = str(config.get("statusPort") or _STATUS_PORT)
    excluded = dict.fromkeys((*_EXCLUDED_PORTS, status_port))
    variables = {
        **config["proxyMetadata"],
        "ISTIO_INBOUND_PORTS": ",".join(map(str, sorted(workload.ports.values()))) or "*",
        "ISTIO_NAMESPACE": workload.namespace,
        "ISTIO_SERVICE": f"{workload.name}.{workload.namespace}",
        "ISTIO_SERVICE_CIDR": "*",
        "ISTIO_LOCAL_EXCLUDE_PORTS": ",".join(excluded),
        "SERVICE_ACCOUNT": workload.account,
        **({"CA_ADDR": f"{options.host}:15012"} if options.revision else {}),
        **_address(options),
    }
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in sorted(variables.items()))


def _address(options: VmOptions) -> dict[str, str]:
    if options.internal_ip:
        return {"ISTIO_SVC_IP": options.internal_ip}
    external = {"ISTIO_SVC_IP": options.external_ip, "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION": "true"}
    return external if options.external_ip else {}
