"""What the agent makes of environment, pod and ProxyConfig."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.proxy.downward_api import parse_downward_file
from pilot.agent.proxy.effective_config import build_proxy_config, parse_object, read_sources
from pilot.agent.proxy.proxy_context import ProxyContext, build_metadata, read_proxy_context, worker_threads
from pilot.lib.duration import Duration
from pilot.settings.parse import load_sections


def gather(environ: dict[str, str], argv: tuple[str, ...] = (), kind: str = "sidecar") -> ProxyContext:
    environ = {"INSTANCE_IP": "10.0.0.1", **environ}
    return read_proxy_context(kind, load_sections(AgentSettings(), argv, environ).settings, environ)


def test_labels_of_the_downward_api_are_unquoted_as_go_quotes_them() -> None:
    text = 'app="shop"\nnote="a \\"b\\" \\x41\\u00e9\\n\\a"\n\nempty=""\nno pair'
    assert parse_downward_file(text) == {"app": "shop", "note": 'a "b" Aé\n\a', "empty": ""}


@pytest.mark.parametrize("value", ["plain", "1", '"open', "{}"])
def test_a_value_that_is_not_quoted_is_named(value: str) -> None:
    with pytest.raises(ValueError, match="the value of app is not a quoted string"):
        parse_downward_file(f"app={value}")


def test_a_pod_is_described_by_its_environment() -> None:
    found = gather(
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
    assert (found.name, found.namespace, found.service_account, found.domain) == (
        "web-1",
        "shop",
        "web",
        "shop.svc.mesh.local",
    )
    assert found.addresses == ("10.0.0.1", "fd00::1")
    assert found.labels == {"app": "web"}
    assert found.metadata == {"CLUSTER_ID": "west", "WORKLOAD_NAME": "web", "OWNER": "me", "LIST": [1]}


def test_labels_of_the_pod_win_over_static_ones_and_its_hash_is_left_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "labels").write_text('app="web"\npod-template-hash="abc"\n')
    (tmp_path / "annotations").write_text('proxy.istio.io/config="concurrency: 3"\n')
    environ = {"POD_LABELS_FILE": str(tmp_path / "labels"), "POD_ANNOTATIONS_FILE": str(tmp_path / "annotations")}
    found = gather({**environ, "ISTIO_METAJSON_LABELS": '{"app": "old", "team": "a"}'})
    assert found.labels == {"app": "web", "team": "a"}
    assert found.config.concurrency == 3


def test_metadata_of_the_proxy_config_is_that_of_the_node_below_the_environment() -> None:
    config = {"proxyMetadata": {"ISTIO_META_A": "config", "ISTIO_META_B": "config", "OTHER": "x"}}
    found = gather({"PROXY_CONFIG": json.dumps(config), "ISTIO_META_B": "environment"})
    assert found.metadata == {"A": "config", "B": "environment"}


@pytest.mark.parametrize(
    ("environ", "kind", "text"),
    [
        ({}, "ambient", "unknown proxy type 'ambient'; use sidecar, router, waypoint"),
        ({"INSTANCE_IP": "10.0.0.1,here"}, "sidecar", "variable INSTANCE_IP: 'here' is not an IP address"),
        ({"ISTIO_METAJSON_X": "[1]"}, "sidecar", "variable ISTIO_METAJSON_X is not a JSON object"),
        ({"PROXY_CONFIG": "[1]"}, "sidecar", "variable PROXY_CONFIG is not an object"),
        ({"PROXY_CONFIG": "{a: b: c}"}, "sidecar", "variable PROXY_CONFIG is neither JSON nor YAML"),
        ({"PROXY_CONFIG": '{"concurrency": "many"}'}, "sidecar", r"variable PROXY_CONFIG: .*\$.concurrency"),
        (
            {"PROXY_CONFIG": '{"drainDuration": "long"}'},
            "sidecar",
            r"variable PROXY_CONFIG: .*'long'.*\$.drainDuration",
        ),
        ({"PROXY_CONFIG": '{"concurency": 1}'}, "sidecar", "variable PROXY_CONFIG: .*concurency"),
    ],
)
def test_what_cannot_be_right_is_said_in_a_sentence(environ: dict[str, str], kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        gather(environ, kind=kind)


def test_later_sources_of_the_proxy_config_win_and_metadata_is_merged(tmp_path: pathlib.Path) -> None:
    mesh = tmp_path / "mesh"
    mesh.write_text(
        "defaultConfig: {concurrency: 1, statusPort: 15030, drainDuration: 20s, proxyMetadata: {A: mesh, B: mesh}}"
    )
    sources = read_sources(
        str(mesh), '{"concurrency": 2, "proxyMetadata": {"B": "variable"}}', {"proxy.istio.io/config": "concurrency: 4"}
    )
    found = build_proxy_config(sources)
    assert (found.config.concurrency, found.config.status_port, found.config.drain_duration) == (
        4,
        15030,
        Duration.of(20),
    )
    assert found.config.proxy_metadata == {"A": "mesh", "B": "variable"}
    assert found.fields["proxyMetadata"] == {"A": "mesh", "B": "variable"}


def test_annotations_of_their_own_win_over_the_proxy_config(tmp_path: pathlib.Path) -> None:
    annotations = {
        "proxy.istio.io/config": "{discoveryAddress: a:1, statusPort: 15030}",
        "sidecar.istio.io/discoveryAddress": "b:2",
        "status.sidecar.istio.io/port": "15040",
    }
    found = build_proxy_config(read_sources(str(tmp_path / "none"), "", annotations)).config
    assert (found.discovery_address, found.status_port) == ("b:2", 15040)
    with pytest.raises(ValueError, match=r"annotation status\.sidecar\.istio\.io/port: .*statusPort"):
        build_proxy_config(read_sources(str(tmp_path / "none"), "", {"status.sidecar.istio.io/port": "many"}))


def test_without_sources_the_built_in_values_hold() -> None:
    found = build_proxy_config([])
    assert found.config.discovery_address == "istiod.istio-system.svc:15012"
    assert found.fields == {}
    assert parse_object("it", "") == {}


def test_metadata_of_labels_is_kept_apart() -> None:
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
def test_envoys_workers_are_those_of_the_flag_the_config_or_the_cpu_limit(
    argv: tuple[str, ...], environ: dict[str, str], config: int | None, expected: int
) -> None:
    assert worker_threads(load_sections(AgentSettings(), argv, environ).settings, config) == expected


def test_a_wrong_variable_is_left_at_its_default_with_a_warning() -> None:
    loaded: Any = load_sections(AgentSettings(), (), {"SECRET_TTL": "soon"})
    assert loaded.settings == AgentSettings()
    assert loaded.warnings == ["environment variable SECRET_TTL is ignored: invalid duration 'soon'"]
