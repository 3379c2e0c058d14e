"""Proxy context from environment, pod and ProxyConfig."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.proxy.proxy_context import ProxyContext, build_metadata, read_proxy_context, worker_threads
from pilot.settings.parse import load_sections


def read_context(environ: dict[str, str], argv: tuple[str, ...] = (), kind: str = "sidecar") -> ProxyContext:
    environ = {"INSTANCE_IP": "10.0.0.1", **environ}
    return read_proxy_context(kind, load_sections(AgentSettings(), argv, environ).settings, environ)


def test_environment_describes_the_pod() -> None:
    context = read_context(
        {
            "POD_NAME": "web-1",
            "POD_NAMESPACE": "shop",
            "SERVICE_ACCOUNT": "web",
            "INSTANCE_IP": "10.0.0.1, fd00::1,10.0.0.1",
            "ISTIO_META_CLUSTER_ID": "west",
            "ISTIO_META_WORKLOAD_NAME": "web",
            "ISTIO_METAJSON_LABELS": '{"app": "web"}',
            "ISTIO_METAJSON_MORE": '{"OWNER": "me", "LIST": [1]}',
        },
        ("--domain", "shop.svc.mesh.local"),
    )
    assert (context.name, context.namespace, context.service_account, context.domain) == (
        "web-1",
        "shop",
        "web",
        "shop.svc.mesh.local",
    )
    assert context.addresses == ("10.0.0.1", "fd00::1")
    assert context.labels == {"app": "web"}
    assert context.metadata == {"CLUSTER_ID": "west", "WORKLOAD_NAME": "web", "OWNER": "me", "LIST": [1]}


def test_pod_labels_win_and_omit_the_template_hash(tmp_path: pathlib.Path) -> None:
    (tmp_path / "labels").write_text('app="web"\npod-template-hash="abc"\n')
    (tmp_path / "annotations").write_text('proxy.istio.io/config="concurrency: 3"\n')
    environ = {"POD_LABELS_FILE": str(tmp_path / "labels"), "POD_ANNOTATIONS_FILE": str(tmp_path / "annotations")}
    context = read_context({**environ, "ISTIO_METAJSON_LABELS": '{"app": "old", "team": "a"}'})
    assert context.labels == {"app": "web", "team": "a"}
    assert context.config.concurrency == 3


def test_environment_wins_over_proxy_config_metadata() -> None:
    config = {"proxyMetadata": {"ISTIO_META_A": "config", "ISTIO_META_B": "config", "OTHER": "x"}}
    context = read_context({"PROXY_CONFIG": json.dumps(config), "ISTIO_META_B": "environment"})
    assert context.metadata == {"A": "config", "B": "environment"}


@pytest.mark.parametrize(
    ("environ", "kind", "text"),
    [
        ({}, "gateway", r"unknown proxy type 'gateway'; did you mean router \(for gateways\)\?; use sidecar"),
        ({}, "ambient", "unknown proxy type 'ambient'; use sidecar, router, waypoint"),
        ({"INSTANCE_IP": "10.0.0.1,here"}, "sidecar", "variable INSTANCE_IP: 'here' is not an IP address"),
        ({"ISTIO_METAJSON_X": "[1]"}, "sidecar", "variable ISTIO_METAJSON_X is not a JSON object"),
        ({"PROXY_CONFIG": "[1]"}, "sidecar", "variable PROXY_CONFIG is not an object"),
        (
            {"PROXY_CONFIG": "{a: b: c}"},
            "sidecar",
            "variable PROXY_CONFIG is neither JSON nor YAML: line 1: expected ','",
        ),
        (
            {"PROXY_CONFIG": '{"concurrency": "many"}'},
            "sidecar",
            "variable PROXY_CONFIG: concurrency: expected an integer",
        ),
        (
            {"PROXY_CONFIG": '{"drainDuration": "long"}'},
            "sidecar",
            "variable PROXY_CONFIG: drainDuration: invalid duration 'long'",
        ),
        (
            {"PROXY_CONFIG": '{"concurency": 1}'},
            "sidecar",
            "variable PROXY_CONFIG: concurency: unknown field; did you mean concurrency",
        ),
        (
            {"PROXY_CONFIG": '{"concurrency": "2", "drainDuration": 5}'},
            "sidecar",
            "variable PROXY_CONFIG: drainDuration: .*write 5s",
        ),
        ({"POD_LABELS_FILE": "/"}, "sidecar", "POD_LABELS_FILE: /: Is a directory"),
    ],
)
def test_invalid_input_is_reported(environ: dict[str, str], kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read_context(environ, kind=kind)


def test_labels_become_separate_metadata() -> None:
    assert build_metadata({"ISTIO_METAJSON_LABELS": '{"a": "b"}', "UNRELATED": "x"}) == {"LABELS": {"a": "b"}}


@pytest.mark.parametrize(
    ("argv", "environ", "config", "expected"),
    [
        (("--concurrency", "3"), {"ISTIO_CPU_LIMIT": "5"}, 4, 3),
        ((), {"ISTIO_CPU_LIMIT": "5"}, 4, 4),
        ((), {"ISTIO_CPU_LIMIT": "5"}, 0, 0),
        ((), {"ISTIO_CPU_LIMIT": "5"}, None, 5),
    ],
)
def test_worker_threads_by_flag_config_or_cpu_limit(
    argv: tuple[str, ...], environ: dict[str, str], config: int | None, expected: int
) -> None:
    assert worker_threads(load_sections(AgentSettings(), argv, environ).settings, config) == expected


def test_invalid_variable_keeps_its_default_with_a_warning() -> None:
    loaded: Any = load_sections(AgentSettings(), (), {"SECRET_TTL": "soon"})
    assert loaded.settings == AgentSettings()
    assert loaded.warnings == [
        "environment variable SECRET_TTL is ignored: invalid duration 'soon': units are h, m, s and ms"
    ]
