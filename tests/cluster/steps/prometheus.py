"""Prometheus as a workload, which finds the targets by the annotations of pods, and evaluates our alerts."""

from __future__ import annotations

from typing import Any

import aiohttp
import yaml

from tests.cluster.box.box import Box
from tests.cluster.box.images import REPOSITORY
from tests.cluster.box.programs import find_beside
from tests.cluster.manifests import objects
from tests.cluster.steps.installations import SYSTEM

NAME, PORT = "prometheus", 9090
META = "__meta_kubernetes_pod_annotation_prometheus_io"
# https://github.com/prometheus/prometheus/blob/main/documentation/examples/prometheus-kubernetes.yml
RELABELING = [
    {"source_labels": [f"{META}_scrape"], "action": "keep", "regex": True},
    {"source_labels": [f"{META}_path"], "action": "replace", "target_label": "__metrics_path__", "regex": "(.+)"},
    {
        "source_labels": [f"{META}_port", "__meta_kubernetes_pod_ip"],
        "action": "replace",
        "target_label": "__address__",
        "regex": "(\\d+);(.+)",
        "replacement": "$2:$1",
    },
    {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
    {"action": "labelmap", "regex": "__meta_kubernetes_pod_label_(.+)"},
]
_ENVOY = '{__name__=~"envoy_cluster_.+"}'
QUERIES = [
    ('up{app="istiod"} == 1', "istiod"),
    ("sum by (pod) (pilot_xds_pushes)", "istiod"),
    (_ENVOY, "front"),
    (_ENVOY, "istio-ingressgateway"),
]
"""Queries, and the beginning of the names of pods of which a result is expected."""


async def run_prometheus(box: Box) -> str:
    """Deploy Prometheus beside istiod, and query it. Without the program, say so."""
    if not find_beside(NAME):
        return "prometheus is not here: not tried"
    await box.apply(_manifest())
    await box.wait_available(SYSTEM, NAME)
    (pod,) = await box.objects("pods", f"-n{SYSTEM}", f"-lapp={NAME}")
    address = f"http://{pod['status']['podIP']}:{PORT}/api/v1"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
        targets = await box.until(lambda: _healthy_targets(session, address), 60, "all targets are up")
        for query, prefix in QUERIES:
            await box.until(lambda q=query, p=prefix: _has_result(session, address, q, p), 60, query)
        rules = await box.until(lambda: _evaluated_rules(session, address), 60, "rules are evaluated")
    return f"Prometheus scrapes {targets} pods by their annotations, and evaluates {rules} rules of deploy/monitoring"


async def _get(session: aiohttp.ClientSession, url: str, **parameters: str) -> Any:
    async with session.get(url, params=parameters) as response:
        assert response.status == 200, await response.text()
        return (await response.json())["data"]


async def _healthy_targets(session: aiohttp.ClientSession, address: str) -> int:
    targets = (await _get(session, f"{address}/targets", state="active"))["activeTargets"]
    faults = [f"{target['scrapeUrl']}: {target['lastError']}" for target in targets if target["health"] != "up"]
    assert not faults, faults
    return len(targets)


async def _has_result(session: aiohttp.ClientSession, address: str, query: str, prefix: str) -> bool:
    results = (await _get(session, f"{address}/query", query=query))["result"]
    assert any(result["metric"].get("pod", "").startswith(prefix) for result in results), results
    return True


async def _evaluated_rules(session: aiohttp.ClientSession, address: str) -> int:
    rules = [rule for group in (await _get(session, f"{address}/rules"))["groups"] for rule in group["rules"]]
    assert rules, "no rules"
    faults = [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
    assert not faults, faults
    return len(rules)


def _manifest() -> str:
    """Return Prometheus' Deployment, configuration and access to pods."""
    scrape = {"job_name": "pods", "kubernetes_sd_configs": [{"role": "pod"}], "relabel_configs": RELABELING}
    settings = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": ["/etc/prometheus/rules.yaml"],
        "scrape_configs": [scrape],
    }
    files = {
        "prometheus.yml": yaml.safe_dump(settings),
        "rules.yaml": (REPOSITORY / "deploy/monitoring/alerts.yaml").read_text("utf-8"),
    }
    metadata = {"name": NAME, "namespace": SYSTEM}
    subject = {"kind": "ServiceAccount", **metadata}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    container = {
        "name": NAME,
        "image": NAME,
        "args": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/data"],
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/prometheus"},
            {"name": "data", "mountPath": "/data"},
        ],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 1},
    }
    volumes = [{"name": "config", "configMap": {"name": NAME}}, {"name": "data", "emptyDir": {}}]
    template = {
        "metadata": {"labels": {"app": NAME, "sidecar.istio.io/inject": "false"}},
        "spec": {"serviceAccountName": NAME, "containers": [container], "volumes": volumes},
    }
    spec = {"selector": {"matchLabels": {"app": NAME}}, "template": template}
    rbac = "rbac.authorization.k8s.io/v1"
    return objects(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": [rule]},
        {"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": NAME}, "roleRef": role, "subjects": [subject]},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
    )  # fmt: skip
