"""The proxy's properties, from its environment, its pod and its ProxyConfig."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.proxy.downward_api import read_downward_file
from pilot.agent.proxy.effective_config import build_proxy_config, read_sources
from pilot.config.mesh.proxy_config import ProxyConfig

META, META_JSON = "ISTIO_META_", "ISTIO_METAJSON_"
TYPES = ("sidecar", "router", "waypoint")
VERSION = "1.32.0"
"""The Istio version that the proxy reports unless ISTIO_META_ISTIO_VERSION is set."""
HASH_LABEL = "pod-template-hash"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProxyContext:
    """The properties of one proxy.

    `addresses` is never empty. `metadata` is additional node metadata from the environment. `config_fields` are the
    fields of the ProxyConfig that users set, keyed by their JSON names.
    """

    type: str
    name: str
    namespace: str
    service_account: str
    domain: str
    addresses: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    metadata: Mapping[str, Any]
    config: ProxyConfig
    config_fields: Mapping[str, Any]


def read_proxy_context(proxy_type: str, settings: AgentSettings, environ: Mapping[str, str]) -> ProxyContext:
    """Return the properties of a proxy. Raises ValueError, with a message for the user, if a source is invalid."""
    if proxy_type not in TYPES:
        hint = "; did you mean router (for gateways)?" if proxy_type == "gateway" else ""
        raise ValueError(f"unknown proxy type {proxy_type!r}{hint}; use {', '.join(TYPES)}")
    pod = settings.pod
    annotations = read_downward_file(pod.annotations_file, "POD_ANNOTATIONS_FILE")
    sources = read_sources(pod.mesh_config, pod.proxy_config, annotations)
    labels = read_downward_file(pod.labels_file, "POD_LABELS_FILE")
    return build_proxy_context(proxy_type, settings, environ, sources, labels, annotations)


def build_proxy_context(
    proxy_type: str,
    settings: AgentSettings,
    environ: Mapping[str, str],
    sources: Iterable[tuple[str, Mapping[str, Any]]],
    pod_labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> ProxyContext:
    """Return the properties of a proxy whose ProxyConfig is merged from `sources`. Raises ValueError like the above."""
    pod = settings.pod
    effective = build_proxy_config(sources)
    metadata = build_metadata({**effective.config.proxy_metadata, **environ})
    metadata_labels = metadata.pop("LABELS", {})
    labels = {**(metadata_labels if isinstance(metadata_labels, dict) else {}), **pod_labels}
    labels.pop(HASH_LABEL, None)
    return ProxyContext(
        type=proxy_type,
        name=pod.name or socket.gethostname(),
        namespace=pod.namespace,
        service_account=pod.service_account,
        domain=pod.domain or f"{pod.namespace}.svc.cluster.local",
        addresses=_addresses(pod.ip),
        labels=labels,
        annotations=annotations,
        metadata=metadata,
        config=effective.config,
        config_fields=effective.fields,
    )


def build_metadata(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the node metadata in environment variables.

    ISTIO_META_X sets the string X. ISTIO_METAJSON_LABELS sets the labels. Any other ISTIO_METAJSON_X is an object that
    is merged into the metadata. Raises ValueError with the name of the variable if its value is not an object.
    """
    metadata: dict[str, Any] = {
        name.removeprefix(META): value for name, value in environ.items() if name.startswith(META)
    }
    for name, value in environ.items():
        if name.startswith(META_JSON):
            try:
                fields = json.loads(value)
            except ValueError:
                fields = None
            if not isinstance(fields, dict):
                raise ValueError(f"variable {name} is not a JSON object")
            metadata.update({"LABELS": fields} if name == f"{META_JSON}LABELS" else fields)
    return metadata


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for address in addresses:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise ValueError(f"variable INSTANCE_IP: {address!r} is not an IP address") from None
    return addresses or (_default_address(),)


def _default_address() -> str:
    """Return the source address of the default route, without sending a packet."""
    for family, destination in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as client:
                client.connect((destination, 9))
                address: str = client.getsockname()[0]
                return address
        except OSError:
            continue
    raise ValueError("cannot determine the IP address because there is no default route; set INSTANCE_IP")


def worker_threads(settings: AgentSettings, config_concurrency: int | None) -> int:
    """Return the number of Envoy's worker threads. 0 selects Envoy's default, which is one per CPU."""
    if settings.envoy.concurrency:
        return settings.envoy.concurrency
    if config_concurrency is not None:
        return config_concurrency
    return settings.envoy.cpu_limit or min(2, os.cpu_count() or 1)
