"""Prometheus annotations of injected pods, and the scrape settings of the agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from webhook.inject.config import InjectorConfig, WrittenConfig
from webhook.inject.errors import InjectionError
from webhook.inject.owner import WorkloadOwner
from webhook.inject.prometheus import merge_metrics, secure_port
from webhook.inject.request import InjectionRequest

Plain = dict[str, Any]
TARGETS, PORT, PATH, SCRAPE = (
    "prometheus.istio.io/scrape-targets",
    "prometheus.io/port",
    "prometheus.io/path",
    "prometheus.io/scrape",
)
AGENT_ANNOTATIONS = {PORT: "15020", PATH: "/stats/prometheus", SCRAPE: "true"}


def pod(annotations: dict[str, str], *variables: Plain) -> Plain:
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "app"}, {"name": "istio-proxy", "env": list(variables)}]},
    }


def merge(annotations: dict[str, str], status_port: int = 15020) -> tuple[dict[str, str], list[Plain]]:
    """Return the merged annotations, and the scrape settings of the agent."""
    mesh = MeshConfig(default_config=ProxyConfig(status_port=status_port))
    config = InjectorConfig(WrittenConfig(), {}, {})
    request = InjectionRequest(
        pod(annotations), WorkloadOwner("Pod", "v1", "a", "b"), config, mesh, mesh.default_config, "", {}, False
    )
    injected = merge_metrics(pod(annotations), request)
    (_, sidecar) = injected["spec"]["containers"]
    return injected["metadata"]["annotations"], [json.loads(e["value"]) for e in sidecar["env"]]


@pytest.mark.parametrize(
    ("annotations", "settings"),
    [
        ({}, []),
        ({SCRAPE: "true"}, [{"scrape": "true", "path": "", "port": ""}]),
        ({SCRAPE: "perhaps", PORT: "9090"}, [{"scrape": "perhaps", "path": "", "port": "9090"}]),
        ({PORT: "+9090", PATH: "/m"}, [{"scrape": "", "path": "/m", "port": "+9090"}]),
        ({PORT: "1"}, [{"scrape": "", "path": "", "port": "1"}]),
        ({PORT: "65535"}, [{"scrape": "", "path": "", "port": "65535"}]),
        (
            {TARGETS: "9090:/a, 9091"},
            [
                {
                    "scrape": "",
                    "path": "/a",
                    "port": "9090",
                    "targets": [{"port": "9090", "path": "/a"}, {"port": "9091", "path": "/metrics"}],
                }
            ],
        ),
        ({TARGETS: "9090:/a,:/b"}, []),
    ],
)
def test_scrape_settings_of_the_agent(annotations: dict[str, str], settings: list[Plain]) -> None:
    assert merge(annotations) == (AGENT_ANNOTATIONS, settings)


def test_targets_without_a_port_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    merge({TARGETS: "9090:/a,:/b"})
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["failed to parse the annotation prometheus.istio.io/scrape-targets: empty port in ':/b'"]


@pytest.mark.parametrize(
    "annotations", [{SCRAPE: "false", PORT: "9090"}, {"prometheus.istio.io/merge-metrics": "false", PORT: "9090"}]
)
def test_disabled_merging_keeps_the_annotations(annotations: dict[str, str]) -> None:
    assert merge(annotations) == (annotations, [])


@pytest.mark.parametrize(
    ("annotations", "error"),
    [
        ({PORT: "0"}, 'invalid prometheus scrape configuration: invalid port "0"'),
        ({PORT: "65536"}, 'invalid prometheus scrape configuration: invalid port "65536"'),
        ({PORT: "http"}, 'invalid prometheus scrape configuration: invalid port "http"'),
        ({PORT: "015020"}, "invalid prometheus scrape configuration: port 015020 conflicts with agent port"),
        ({PORT: "1" * 5000}, f'invalid prometheus scrape configuration: invalid port "{"1" * 5000}"'),
        ({PORT: "0" * 5000}, f'invalid prometheus scrape configuration: invalid port "{"0" * 5000}"'),
        ({TARGETS: "9090,0"}, 'invalid prometheus scrape targets: invalid target port "0"'),
        ({TARGETS: "15020:/a"}, "invalid prometheus scrape targets: target port 15020 conflicts with agent port"),
    ],
)
def test_invalid_ports(annotations: dict[str, str], error: str) -> None:
    with pytest.raises(InjectionError) as raised:
        merge(annotations)
    assert str(raised.value) == error


def test_annotations_of_the_gateway_chart_follow_the_status_port() -> None:
    assert merge(AGENT_ANNOTATIONS, 15030) == ({**AGENT_ANNOTATIONS, PORT: "15030"}, [])
    with pytest.raises(InjectionError, match="port 15020 is reserved for Istio"):
        merge({PORT: "15020", PATH: "/metrics"}, 15030)


@pytest.mark.parametrize(
    ("values", "port"),
    [
        (["15091"], "15091"),
        (["0"], None),
        ([""], None),
        (["0", "15091"], "15091"),
        (["", "15092"], "15092"),
        ([], None),
    ],
)
def test_secure_port(values: list[str], port: str | None) -> None:
    original = pod(
        {},
        *({"name": "ENVOY_SECURE_MERGED_METRICS_PORT", "value": value} for value in values),
        {"name": "OTHER", "value": "1"},
    )
    annotations = secure_port(original)["metadata"]["annotations"]
    assert list(annotations.values()) == ([port] if port else [])
