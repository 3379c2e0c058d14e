"""ProxyConfig from mesh config, environment and annotations."""

from __future__ import annotations

import pathlib

import pytest

from pilot.agent.proxy.effective_config import build_proxy_config, parse_object, read_sources
from pilot.lib.duration import Duration


def test_later_proxy_config_sources_win_and_metadata_is_merged(tmp_path: pathlib.Path) -> None:
    mesh = tmp_path / "mesh"
    mesh.write_text(
        "defaultConfig: {concurrency: 1, statusPort: 15030, drainDuration: 20s, proxyMetadata: {A: mesh, B: mesh}}"
    )
    sources = read_sources(
        str(mesh), '{"concurrency": 2, "proxyMetadata": {"B": "variable"}}', {"proxy.istio.io/config": "concurrency: 4"}
    )
    context = build_proxy_config(sources)
    assert (context.config.concurrency, context.config.status_port, context.config.drain_duration) == (
        4,
        15030,
        Duration.of(20),
    )
    assert context.config.proxy_metadata == {"A": "mesh", "B": "variable"}
    assert context.fields["proxyMetadata"] == {"A": "mesh", "B": "variable"}


def test_dedicated_annotations_win_over_the_proxy_config(tmp_path: pathlib.Path) -> None:
    annotations = {
        "proxy.istio.io/config": "{discoveryAddress: a:1, statusPort: 15030}",
        "sidecar.istio.io/discoveryAddress": "b:2",
        "status.sidecar.istio.io/port": "15040",
    }
    context = build_proxy_config(read_sources(str(tmp_path / "none"), "", annotations)).config
    assert (context.discovery_address, context.status_port) == ("b:2", 15040)
    with pytest.raises(ValueError, match=r"annotation status\.sidecar\.istio\.io/port: .*statusPort"):
        build_proxy_config(read_sources(str(tmp_path / "none"), "", {"status.sidecar.istio.io/port": "many"}))


def test_defaults_without_sources() -> None:
    context = build_proxy_config([])
    assert context.config.discovery_address == "istiod.istio-system.svc:15012"
    assert context.fields == {}
    assert parse_object("it", "") == {}


def test_names_may_be_in_snake_case(tmp_path: pathlib.Path) -> None:
    annotation = "{proxy_metadata: {A: b}, status_port: 15030, connection_settings: {http_idle_timeout: 9s}}"
    variable = '{"proxyMetadata": {"C": "d"}}'
    context = build_proxy_config(read_sources(str(tmp_path / "none"), variable, {"proxy.istio.io/config": annotation}))
    assert (context.config.proxy_metadata, context.config.status_port) == ({"A": "b", "C": "d"}, 15030)
    assert context.fields["connectionSettings"] == {"httpIdleTimeout": "9s"}
    sources = read_sources(str(tmp_path / "none"), "{status_port: 1, statusPort: 2}", {})
    with pytest.raises(ValueError, match=r"^variable PROXY_CONFIG: only one spelling of statusPort may be set$"):
        build_proxy_config(sources)
