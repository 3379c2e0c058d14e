from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
import yaml

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.ingest.batch import Batch
from pilot.ingest.files.mesh_files import MeshFiles
from pilot.ingest.mesh_config import decode_mesh_config, decode_mesh_networks
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import Duration, parse_duration
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock


def mesh(*layers: str) -> MeshConfig:
    config, problems = decode_mesh_config([yaml.safe_load(layer) for layer in layers])
    assert {p.code for p in problems} <= {"no-effect"}  # test_without_effect.py tests which fields
    assert config is not None
    return config


def test_defaults() -> None:
    config = mesh("")
    assert config == MeshConfig() == mesh()
    assert (config.trust_domain, config.root_namespace, config.ingress_class) == (
        "cluster.local",
        "istio-system",
        "istio",
    )
    assert (config.enable_tracing, config.enable_auto_mtls, config.enable_prometheus_merge) == (True, True, True)
    assert (config.outbound_traffic_policy.mode, config.inbound_traffic_policy.mode) == ("ALLOW_ANY", "PASSTHROUGH")
    assert (config.proxy_listen_port, config.proxy_inbound_listen_port, config.connect_timeout) == (
        15001,
        15006,
        Duration.of(10),
    )
    assert (config.default_service_export_to, config.dns_refresh_rate) == (("*",), Duration.of(60))
    assert config.locality_lb_setting.enabled is True
    assert [p.name for p in config.extension_providers] == ["prometheus", "stackdriver", "envoy"]
    proxy = config.default_config
    assert (proxy.discovery_address, proxy.status_port, proxy.proxy_admin_port) == (
        "istiod.istio-system.svc:15012",
        15020,
        15000,
    )
    assert (proxy.drain_duration, proxy.termination_drain_duration, proxy.stat_name_length) == (
        Duration.of(45),
        Duration.of(5),
        189,
    )


def test_set_fields_replace_defaults() -> None:
    config = mesh(
        "{outboundTrafficPolicy: {}, connectTimeout: 1.5s, accessLogFile: /dev/stdout, localityLbSetting: {failover: [{from: a, to: b}]}}"
    )
    assert config.outbound_traffic_policy.mode == "REGISTRY_ONLY"  # an empty message has protobuf's defaults
    assert config.locality_lb_setting.enabled is None
    assert config.connect_timeout == Duration.of(1.5)
    assert config.trust_domain == "cluster.local"


def test_layers_are_merged() -> None:
    config = mesh(
        """
        defaultConfig: {statusPort: 15000, proxyMetadata: {a: "1", b: "1"}, proxyHeaders: {server: {value: x}, requestId: {disabled: true}}}
        defaultProviders: {tracing: [a], metrics: [a]}
        extensionProviders: [{name: envoy, prometheus: {}}, {name: b, zipkin: {service: b, port: 1}}]
        trustDomainAliases: [z, b]
        """,
        """
        defaultConfig: {proxyMetadata: {b: "2"}, proxyHeaders: {server: {value: y}}, meshId: m}
        defaultProviders: {tracing: [b]}
        extensionProviders: [{name: b, zipkin: {service: c, port: 2}}, {name: a, sds: {name: s, service: d, port: 3}}]
        trustDomainAliases: [a, b]
        """,
    )
    proxy = config.default_config
    assert (proxy.status_port, proxy.mesh_id, proxy.proxy_metadata) == (15000, "m", {"a": "1", "b": "2"})
    assert proxy.proxy_headers is not None
    assert proxy.proxy_headers.server is not None
    assert proxy.proxy_headers.request_id is not None
    assert proxy.proxy_headers.server.value == "y"
    assert (config.default_providers.tracing, config.default_providers.metrics) == (("b",), ("a",))
    assert [p.name for p in config.extension_providers] == ["prometheus", "stackdriver", "envoy", "b", "a"]
    by_name = {p.name: p for p in config.extension_providers}
    assert by_name["envoy"].prometheus is not None
    assert by_name["envoy"].envoy_file_access_log is None
    assert by_name["b"].zipkin is not None
    assert by_name["b"].zipkin.service == "c"
    assert config.trust_domain_aliases == ("a", "b", "z")


def test_field_names_in_camel_and_snake_case() -> None:
    config = mesh(
        "{trust_domain: a, default_config: {proxy_metadata: {some_key: v}}, mesh_mTLS: {min_protocol_version: TLSV1_3}}"
    )
    assert config.trust_domain == "a"
    assert config.default_config.proxy_metadata == {"some_key": "v"}
    assert config.mesh_mTLS is not None
    assert config.mesh_mTLS == mesh("{meshMTLS: {minProtocolVersion: TLSV1_3}}").mesh_mTLS


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ("[a]", "wrong-type", ""),
        ("{trustDomian: a}", "unknown-field", "trustDomian"),
        ("{connectTimeout: 10}", "bad-duration", "connectTimeout"),
        ("{connectTimeout: 2h}", "bad-duration", "connectTimeout"),
        ("{proxyListenPort: 0}", "bad-port", "proxyListenPort"),
        ("{proxyInboundListenPort: 65536}", "bad-port", "proxyInboundListenPort"),
        ("{proxyInboundListenPort: 15001}", "duplicate-port", "proxyInboundListenPort"),
        ("{proxyHttpPort: 65536}", "bad-port", "proxyHttpPort"),
        ("{protocolDetectionTimeout: -1s}", "bad-duration", "protocolDetectionTimeout"),
        ("{defaultHttpRetryPolicy: {attempts: 1, backoff: -1s}}", "bad-duration", "defaultHttpRetryPolicy.backoff"),
        ("{trustDomain: 'a b'}", "bad-trust-domain", "trustDomain"),
        ("{trustDomainAliases: ['']}", "bad-trust-domain", "trustDomainAliases[0]"),
        ("{defaultConfig: {discoveryAddress: here}}", "bad-port", "defaultConfig.discoveryAddress"),
        ("{defaultConfig: {drainDuration: 1500ms}}", "bad-duration", "defaultConfig.drainDuration"),
        (
            "{defaultConfig: {connectionSettings: {httpIdleTimeout: -1s}}}",
            "out-of-range",
            "defaultConfig.connectionSettings.httpIdleTimeout",
        ),
        ("{outboundTrafficPolicy: {mode: SOME}}", "bad-enum", "outboundTrafficPolicy.mode"),
        ("{serviceSettings: [{hosts: ['a_b']}]}", "bad-host", "serviceSettings[0].hosts[0]"),
        (
            "{extensionProviders: [{name: a, prometheus: {}, stackdriver: {}}]}",
            "exclusive-fields",
            "extensionProviders[0]",
        ),
        ("{meshMTLS: {ecdhCurves: [P-256]}}", "not-supported", "meshMTLS.ecdhCurves"),
        (
            "{localityLbSetting: {distribute: [{from: a, to: {b: 1}}]}}",
            "bad-weights",
            "localityLbSetting.distribute[0].to",
        ),
        ("{defaultTrafficPolicy: {connectionPool: {}}}", "missing-field", "defaultTrafficPolicy.connectionPool"),
        ("{configSources: [{address: ''}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'localhost:15010'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'k8s://'}, {address: 'fs://etc'}]}", "bad-source", "configSources[1].address"),
        ("{configSources: [{address: 'fs://'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://a'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://a:0'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://a:x'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://a:65536'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://[::1:1'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://::1]:1'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://a_b:1'}]}", "bad-source", "configSources[0].address"),
        ("{configSources: [{address: 'xds://::1:15010'}]}", "bad-source", "configSources[0].address"),
        (
            "{configSources: [{address: 'xds://a:1', tlsSettings: {mode: ISTIO_MUTUAL}}]}",
            "not-supported",
            "configSources[0].tlsSettings.mode",
        ),
        (
            "{configSources: [{address: 'xds://a:1', tlsSettings: {mode: SIMPLE}}]}",
            "tls-certificates",
            "configSources[0].tlsSettings.caCertificates",
        ),
        (
            "{configSources: [{address: 'xds://a:1', tlsSettings: {mode: MUTUAL, caCertificates: /r, privateKey: /k}}]}",
            "tls-certificates",
            "configSources[0].tlsSettings.clientCertificate",
        ),
        (
            "{configSources: [{address: 'xds://a:1', tlsSettings: {mode: SIMPLE, caCertificates: /r, subjectAltNames: [a, b]}}]}",
            "not-supported",
            "configSources[0].tlsSettings.subjectAltNames",
        ),
    ],
)
def test_invalid_mesh_config_is_rejected(text: str, code: str, path: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(text)])
    assert config is None
    assert [(p.code, p.path, str(p.object.kind)) for p in problems if p.code != "no-effect"] == [
        (code, path, "MeshConfig")
    ]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("[::1]:8125", []),
        ("127.0.0.1:8125", []),
        ("[::1:8125", ["bad-host"]),
        ("::1]:8125", ["bad-host"]),
        ("[::1]:0", ["bad-port"]),
    ],
)
def test_ipv6_address_requires_brackets(address: str, expected: list[str]) -> None:
    _, problems = decode_mesh_config([{"defaultConfig": {"statsdUdpAddress": address}}])
    assert [(p.code, p.path) for p in problems if p.code != "no-effect"] == [
        (code, "defaultConfig.statsdUdpAddress") for code in expected
    ]


@pytest.mark.parametrize(
    ("source", "code", "path"),
    [
        ("{address: 'ftp://a'}", "bad-source", "address"),
        ("{address: 'k8s://other'}", "bad-source", "address"),
        ("{address: 'xds://[::1]:15010', subscribedResources: [SERVICE_REGISTRY]}", "no-effect", "subscribedResources"),
        ("{address: 'fs:///etc/mesh', tlsSettings: {mode: DISABLE}}", "no-effect", "tlsSettings"),
    ],
)
def test_ignored_config_source_is_reported(source: str, code: str, path: str) -> None:
    config, problems = decode_mesh_config([yaml.safe_load(f"{{configSources: [{source}]}}")])
    assert config is not None
    assert [(p.code, p.path, str(p.severity)) for p in problems] == [(code, f"configSources[0].{path}", "warning")]


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ("{nets: {}}", "unknown-field", "nets"),
        ("{networks: {a: {endpoints: [{fromCidr: 10.0.0.0/99}]}}}", "bad-address", "networks[a].endpoints[0].fromCidr"),
        ("{networks: {a: {gateways: [{address: 1.1.1.1}]}}}", "missing-field", "networks[a].gateways[0].port"),
        ("{networks: {a: {gateways: [{address: 'a b', port: 1}]}}}", "bad-host", "networks[a].gateways[0].address"),
    ],
)
def test_invalid_mesh_networks_are_rejected(text: str, code: str, path: str) -> None:
    networks, problems = decode_mesh_networks(yaml.safe_load(text))
    assert networks is None
    assert [(p.code, p.path, str(p.object.kind)) for p in problems] == [(code, path, "MeshNetworks")]


class MeshFolder:
    """Mesh config and networks loaded from files of a folder."""

    def __init__(self, folder: pathlib.Path, *required: str) -> None:
        self.mesh, self.problems, self.clock = Mesh(), ProblemStore(lambda _: None), VirtualClock()
        self.batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), lambda _: None)
        paths = [str(folder / name) for name in required]
        self.files = MeshFiles(str(folder / "mesh"), str(folder / "networks"), self.batch, self.problems, paths)
        self.files.load_initial()
        self.batch.flush()

    def row(self, key: str) -> Any:
        return self.mesh.mesh.peek(key)


def test_defaults_apply_without_files(tmp_path: pathlib.Path) -> None:
    mesh_folder = MeshFolder(tmp_path / "none")
    assert mesh_folder.row("mesh") == MeshConfig()
    assert mesh_folder.row("networks") == MeshNetworks()


def test_initially_invalid_file_leaves_the_defaults(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mesh").write_text("accessLogFile: /dev/stdout\ntrustDomian: a\n")
    (tmp_path / "networks").write_text("networks: {}\n---\nnetworks: {}\n")
    mesh_folder = MeshFolder(tmp_path)
    assert mesh_folder.row("mesh") == MeshConfig()
    problems = sorted((p.code, p.path, pathlib.Path(p.file).name, p.line) for p in mesh_folder.problems)
    assert problems == [("syntax-error", "", "networks", 3), ("unknown-field", "trustDomian", "mesh", 2)]


def test_repeated_key_is_invalid(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mesh").write_text("trustDomain: a\ntrustDomain: b\n")
    mesh_folder = MeshFolder(tmp_path)
    assert mesh_folder.row("mesh") == MeshConfig()
    assert [(p.message, p.line) for p in mesh_folder.problems] == [("the key 'trustDomain' occurs more than once", 2)]


def test_required_file_must_exist(tmp_path: pathlib.Path) -> None:
    mesh_folder = MeshFolder(tmp_path, "mesh")
    assert [(p.code, p.message, p.file) for p in mesh_folder.problems] == [
        ("unreadable-file", "No such file or directory", str(tmp_path / "mesh"))
    ]


async def test_removed_required_file_keeps_the_last_version(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mesh").write_text("trustDomain: a")
    mesh_folder = MeshFolder(tmp_path, "mesh")
    await mesh_folder.files.start()
    (tmp_path / "mesh").unlink()
    async with asyncio.timeout(20):
        while not len(mesh_folder.problems):
            await asyncio.sleep(0.01)
    await mesh_folder.files.stop()
    mesh_folder.batch.flush()
    assert mesh_folder.row("mesh").trust_domain == "a"
    assert [p.message for p in mesh_folder.problems] == [
        "No such file or directory; the last valid version stays in force"
    ]
