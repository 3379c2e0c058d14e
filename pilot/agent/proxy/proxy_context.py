"""What the agent knows of its proxy before it has talked to anybody: environment, pod, ProxyConfig."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.proxy.downward_api import read_downward_file
from pilot.agent.proxy.effective_config import EffectiveConfig, build_proxy_config, read_sources

META, META_JSON = "ISTIO_META_", "ISTIO_METAJSON_"
TYPES = ("sidecar", "router", "waypoint")
VERSION = "1.32.0"
"""The version of Istio whose configuration this agent's Envoy takes, where ISTIO_META_ISTIO_VERSION does not say another one."""
HASH_LABEL = "pod-template-hash"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProxyContext:
    """`addresses` is never empty. `metadata` is what the environment adds to the node, texts and JSON values."""

    type: str
    name: str
    namespace: str
    service_account: str
    domain: str
    addresses: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    metadata: Mapping[str, Any]
    proxy: EffectiveConfig


def read_proxy_context(kind: str, settings: AgentSettings, environ: Mapping[str, str]) -> ProxyContext:
    """Returns what is known of a proxy of that type. ValueError, a sentence for the user, where something of it cannot be right."""
    if kind not in TYPES:
        raise ValueError(f"{kind!r} is no type of proxy: use {', '.join(TYPES)}")
    pod = settings.pod
    annotations = read_downward_file(pod.annotations_file)
    proxy = build_proxy_config(read_sources(pod.mesh_config, pod.proxy_config, annotations))
    metadata = build_metadata({**proxy.config.proxy_metadata, **environ})
    static = metadata.pop("LABELS", {})
    labels = {**(static if isinstance(static, dict) else {}), **read_downward_file(pod.labels_file)}
    labels.pop(HASH_LABEL, None)
    return ProxyContext(
        type=kind,
        name=pod.name or socket.gethostname(),
        namespace=pod.namespace,
        service_account=pod.service_account,
        domain=pod.domain or f"{pod.namespace}.svc.cluster.local",
        addresses=_addresses(pod.ip),
        labels=labels,
        annotations=annotations,
        metadata=metadata,
        proxy=proxy,
    )


def build_metadata(environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns the metadata that variables declare: ISTIO_META_X is the text X, ISTIO_METAJSON_LABELS the labels, and any other
    ISTIO_METAJSON_X an object of further metadata. ValueError, which names the variable, where that is no object."""
    found: dict[str, Any] = {name.removeprefix(META): value for name, value in environ.items() if name.startswith(META)}
    for name, value in environ.items():
        if name.startswith(META_JSON):
            try:
                more = json.loads(value)
            except ValueError:
                more = None
            if not isinstance(more, dict):
                raise ValueError(f"variable {name} is not a JSON object")
            found.update({"LABELS": more} if name == f"{META_JSON}LABELS" else more)
    return found


def _addresses(text: str) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for address in given:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise ValueError(f"variable INSTANCE_IP: {address!r} is not an IP address") from None
    return given or (_default_address(),)


def _default_address() -> str:
    """Returns the address that this machine sends from by its default route; nothing is sent to find it."""
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                address: str = probe.getsockname()[0]
                return address
        except OSError:
            continue
    raise ValueError("this machine has no default route to learn an address from: set INSTANCE_IP")


def workers(settings: AgentSettings, config_concurrency: int | None) -> int:
    """Returns Envoy's number of worker threads; 0 leaves it to Envoy, which takes one for each CPU."""
    if settings.envoy.concurrency:
        return settings.envoy.concurrency
    if config_concurrency is not None:
        return config_concurrency
    return settings.envoy.cpu_limit or min(2, os.cpu_count() or 1)
