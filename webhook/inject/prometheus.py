"""Merges the metrics of the application and the proxy.

Annotations direct Prometheus to the agent. An environment variable tells the agent the location of the application's
metrics.

https://istio.io/latest/docs/ops/integrations/prometheus/#option-1-metrics-merging
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.lib.flags import parse_bool
from pilot.lib.logging.log import scope
from webhook.inject.annotations import MERGE_METRICS
from webhook.inject.containers import PROXY, find_anywhere, with_container
from webhook.inject.errors import InjectionError
from webhook.inject.request import InjectionRequest

Plain = dict[str, Any]
_log = scope("webhook")
_SCRAPE, _PORT, _PATH, _TARGETS = (
    "prometheus_io_scrape",
    "prometheus_io_port",
    "prometheus_io_path",
    "prometheus_istio_io_scrape_targets",
)
AGENT_PATH = "/stats/prometheus"
_DEFAULT_AGENT = (str(ProxyConfig().status_port), AGENT_PATH)
_OURS = frozenset({_SCRAPE, _PORT, _PATH, _TARGETS})
_SECURE_PORT = "prometheus.istio.io/secure-port"
_RESERVED = {
    "15000": "Envoy admin",
    "15001": "outbound traffic capture",
    "15004": "pilot debug",
    "15006": "inbound traffic capture",
    "15008": "HBONE tunnel",
    "15020": "pilot-agent status / merged Prometheus",
    "15021": "Envoy health",
    "15053": "DNS proxy",
    "15090": "Envoy Prometheus (already merged)",
}


@functools.lru_cache(maxsize=1024)
def _spelt(name: str) -> str:
    """Return an annotation's name in normal form. Prometheus normalizes names in the same way."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def is_prometheus(name: str) -> bool:
    """Return whether an annotation configures scraping. All spellings that Prometheus accepts are recognized."""
    return _spelt(name) in _OURS


def _annotation(annotations: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in annotations.items() if _spelt(key) == name), None)


def is_rerouted(annotations: Mapping[str, str], status_port: int) -> bool:
    """Return whether the annotations already direct Prometheus to the agent."""
    return _annotation(annotations, _PORT) == str(status_port)


def _is_default_agent(annotations: Mapping[str, str]) -> bool:
    """Return whether annotations name the default address of the agent's metrics, as those of the gateway chart do.

    They are no metrics of the application, also where the mesh config has another status port.
    """
    is_default = (_annotation(annotations, _PORT), _annotation(annotations, _PATH)) == _DEFAULT_AGENT
    return is_default and _annotation(annotations, _TARGETS) is None


def merge_metrics(pod: Plain, request: InjectionRequest) -> Plain:
    """Return the Pod with annotations that direct Prometheus to the agent.

    Raise InjectionError if the application's port is invalid or reserved.
    """
    annotations = pod["metadata"]["annotations"]
    port = request.mesh.default_config.status_port
    if not _is_scraped(annotations) or not _is_merged(annotations, request) or is_rerouted(annotations, port):
        return pod
    scrape = {} if _is_default_agent(annotations) else _configuration(annotations, port)
    if (sidecar := find_anywhere(pod, PROXY)) is not None and any(scrape.values()):
        variable = {"name": "ISTIO_PROMETHEUS_ANNOTATIONS", "value": msgspec.json.encode(scrape).decode()}
        pod = with_container(pod, {**sidecar, "env": [*(sidecar.get("env") or ()), variable]})
    others = {k: v for k, v in annotations.items() if not is_prometheus(k)}
    rerouted = {
        "prometheus.io/port": str(port),
        "prometheus.io/path": AGENT_PATH,
        "prometheus.io/scrape": "true",
    }
    return {**pod, "metadata": {**pod["metadata"], "annotations": {**others, **rerouted}}}


def _is_scraped(annotations: Mapping[str, str]) -> bool:
    value = _annotation(annotations, _SCRAPE)
    try:
        return value is None or parse_bool(value)
    except ValueError:
        return True


def _is_merged(annotations: Mapping[str, str], request: InjectionRequest) -> bool:
    if MERGE_METRICS in annotations:
        return parse_bool(annotations[MERGE_METRICS])
    return request.mesh.enable_prometheus_merge


def _configuration(annotations: Mapping[str, str], agent: int) -> dict[str, Any]:
    """Return the location of the application's metrics in the agent's format."""
    scrape: dict[str, Any] = {
        "scrape": _annotation(annotations, _SCRAPE) or "",
        "path": _annotation(annotations, _PATH) or "",
        "port": _annotation(annotations, _PORT) or "",
    }
    targets = _targets(_annotation(annotations, _TARGETS) or "")
    if targets:
        scrape.update(targets[0], targets=targets)
        for target in targets:
            _check(target["port"], agent, "invalid prometheus scrape targets: ", "target ", " and cannot be scraped")
    elif scrape["port"]:
        _check(scrape["port"], agent, "invalid prometheus scrape configuration: ", "", " and cannot be scraped")
    return scrape


def _targets(text: str) -> list[dict[str, str]]:
    """Return the port and path of each target, or [] if a port is missing."""
    targets = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        port, _, path = (part.strip() for part in entry.partition(":"))
        if not port:
            _log.warning("failed to parse the annotation prometheus.istio.io/scrape-targets: empty port in %r", entry)
            return []
        targets.append({"port": port, "path": path or "/metrics"})
    return targets


def _check(port: str, agent: int, head: str, subject: str, tail: str) -> None:
    number = port.removeprefix("+").lstrip("0")
    if not re.fullmatch(r"\+?0*[1-9][0-9]{0,4}", port, re.ASCII) or int(number) > 65535:
        raise InjectionError(f'{head}invalid {subject}port "{port}"')
    if number == str(agent):
        raise InjectionError(f"{head}{subject}port {port} conflicts with agent port")
    if number in _RESERVED:
        raise InjectionError(f"{head}{subject}port {port} is reserved for Istio ({_RESERVED[number]}){tail}")


def secure_port(pod: Plain) -> Plain:
    """Return the Pod with an annotation for the port on which the proxy serves merged metrics over TLS.

    An existing annotation is kept.
    """
    annotations = pod["metadata"]["annotations"]
    sidecar = find_anywhere(pod, PROXY)
    if sidecar is None or _annotation(annotations, _spelt(_SECURE_PORT)) is not None:
        return pod
    values = (e.get("value") for e in sidecar.get("env") or () if e.get("name") == "ENVOY_SECURE_MERGED_METRICS_PORT")
    port = next((value for value in values if value and value != "0"), None)
    return (
        pod
        if port is None
        else {**pod, "metadata": {**pod["metadata"], "annotations": {**annotations, _SECURE_PORT: port}}}
    )
