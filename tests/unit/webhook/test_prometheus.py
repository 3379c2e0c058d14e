"""Where a pod's metrics are scraped after injection, and where its agent finds those of the application."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.config.mesh.mesh_config import MeshConfig
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
OF_THE_AGENT = {PORT: "15020", PATH: "/stats/prometheus", SCRAPE: "true"}


def pod(annotations: dict[str, str], *variables: Plain) -> Plain:
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "app"}, {"name": "istio-proxy", "env": list(variables)}]},
    }


def merged(annotations: dict[str, str]) -> tuple[dict[str, str], list[Plain]]:
    """The annotations afterwards, and what the agent is told."""
    mesh = MeshConfig()
    config = InjectorConfig(WrittenConfig(), {}, {})
    request = InjectionRequest(
        pod(annotations), WorkloadOwner("Pod", "v1", "a", "b"), config, mesh, mesh.default_config, "", {}, False
    )
    found = merge_metrics(pod(annotations), request)
    (_, sidecar) = found["spec"]["containers"]
    return found["metadata"]["annotations"], [json.loads(e["value"]) for e in sidecar["env"]]


@pytest.mark.parametrize(
    ("annotations", "told"),
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
def test_the_agent_is_told_where_the_application_s_metrics_are(annotations: dict[str, str], told: list[Plain]) -> None:
    assert merged(annotations) == (OF_THE_AGENT, told)


def test_targets_without_a_port_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    merged({TARGETS: "9090:/a,:/b"})
    said = [record.getMessage() for record in caplog.records]
    assert said == ["failed to parse the annotation prometheus.istio.io/scrape-targets: empty port in ':/b'"]


@pytest.mark.parametrize(
    "annotations", [{SCRAPE: "false", PORT: "9090"}, {"prometheus.istio.io/merge-metrics": "false", PORT: "9090"}]
)
def test_metrics_that_are_not_scraped_or_not_merged_stay_where_they_are(annotations: dict[str, str]) -> None:
    assert merged(annotations) == (annotations, [])


@pytest.mark.parametrize(
    ("annotations", "error"),
    [
        ({PORT: "0"}, 'invalid prometheus scrape configuration: invalid port "0"'),
        ({PORT: "65536"}, 'invalid prometheus scrape configuration: invalid port "65536"'),
        ({PORT: "http"}, 'invalid prometheus scrape configuration: invalid port "http"'),
        ({PORT: "015020"}, "invalid prometheus scrape configuration: port 015020 conflicts with agent port"),
        ({TARGETS: "9090,0"}, 'invalid prometheus scrape targets: invalid target port "0"'),
        ({TARGETS: "15020:/a"}, "invalid prometheus scrape targets: target port 15020 conflicts with agent port"),
    ],
)
def test_ports_that_cannot_be_scraped_are_refused(annotations: dict[str, str], error: str) -> None:
    with pytest.raises(InjectionError) as found:
        merged(annotations)
    assert str(found.value) == error


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
def test_the_port_of_metrics_over_tls_is_the_first_that_is_one(values: list[str], port: str | None) -> None:
    given = pod(
        {},
        *({"name": "ENVOY_SECURE_MERGED_METRICS_PORT", "value": value} for value in values),
        {"name": "OTHER", "value": "1"},
    )
    found = secure_port(given)["metadata"]["annotations"]
    assert list(found.values()) == ([port] if port else [])
