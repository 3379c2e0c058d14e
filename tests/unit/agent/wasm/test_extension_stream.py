"""Extension configurations whose remote modules become files."""

from __future__ import annotations

import pathlib

import pytest
from envoy.config.core.v3 import extension_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac_pb2
from envoy.extensions.filters.http.wasm.v3 import wasm_pb2 as http_wasm_pb2
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac_pb2
from envoy.extensions.filters.network.wasm.v3 import wasm_pb2 as network_wasm_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format
from udpa.type.v1 import typed_struct_pb2

from pilot.agent.wasm.extension_rewriter import ExtensionRewriter
from pilot.agent.wasm.extension_stream import ExtensionStream
from pilot.config.extensions.traffic_extension import EnvVar, VmConfig, WasmConfig
from pilot.envoy.extension_config import build_extension_config
from pilot.lib.xds_types import EXTENSION
from testing.servers.image_registry import Reply, archive
from tests.unit.agent.wasm.conftest import FIRST, Modules


def response(config: extension_pb2.TypedExtensionConfig, delta: bool) -> bytes:
    if delta:
        delta_response = discovery_pb2.DeltaDiscoveryResponse(type_url=EXTENSION, nonce="n")
        delta_response.resources.add(name=config.name, version="v").resource.Pack(config)
        return delta_response.SerializeToString()
    full = discovery_pb2.DiscoveryResponse(type_url=EXTENSION, nonce="n", version_info="v")
    full.resources.add().Pack(config)
    return full.SerializeToString()


def unpack_config(raw: bytes, delta: bool) -> extension_pb2.TypedExtensionConfig:
    config = extension_pb2.TypedExtensionConfig()
    if delta:
        assert discovery_pb2.DeltaDiscoveryResponse.FromString(raw).resources[0].resource.Unpack(config)
    else:
        assert discovery_pb2.DiscoveryResponse.FromString(raw).resources[0].Unpack(config)
    return config


def wasm(
    modules: Modules, url: str = "http://HOST/x", secret: str | None = None, **more: str
) -> extension_pb2.TypedExtensionConfig:
    config = WasmConfig(
        url=url.replace("HOST", modules.registry.host), vm_config=VmConfig((EnvVar("A", value="b"),)), **more
    )
    return build_extension_config("r", "a.x", config, "1", secret)


def rewrite_response(modules: Modules, raw: bytes, delta: bool) -> bytes:
    return ExtensionStream(ExtensionRewriter(modules.files, modules.counts), delta).rewrite(raw)


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("kind", ["HTTP", "NETWORK"])
def test_remote_module_becomes_a_file(modules: Modules, delta: bool, kind: str) -> None:
    modules.registry.replies["/x"] = Reply(FIRST)
    config = unpack_config(rewrite_response(modules, response(wasm(modules, type=kind), delta), delta), delta)
    wasm_config = network_wasm_pb2.Wasm() if kind == "NETWORK" else http_wasm_pb2.Wasm()
    assert config.typed_config.Unpack(wasm_config)
    assert pathlib.Path(wasm_config.config.vm_config.code.local.filename).read_bytes() == FIRST
    assert dict(wasm_config.config.vm_config.environment_variables.key_values) == {"A": "b"}
    assert config.name == "r"


@pytest.mark.parametrize(("strategy", "has_rules"), [("FAIL_OPEN", False), ("FAIL_CLOSE", True), ("FAIL_RELOAD", True)])
@pytest.mark.parametrize("kind", ["HTTP", "NETWORK"])
def test_unavailable_module_is_replaced_by_a_filter(
    modules: Modules, strategy: str, has_rules: bool, kind: str
) -> None:
    config = unpack_config(
        rewrite_response(modules, response(wasm(modules, type=kind, fail_strategy=strategy), True), True), True
    )
    rbac = network_rbac_pb2.RBAC() if kind == "NETWORK" else http_rbac_pb2.RBAC()
    assert config.typed_config.Unpack(rbac)
    assert rbac.HasField("rules") is has_rules
    statistics = rbac.stat_prefix if kind == "NETWORK" else rbac.rules_stat_prefix
    assert statistics == ("wasm-default-deny" if has_rules else "wasm-default-allow")


def test_missing_file_is_replaced_by_a_filter_until_it_exists(modules: Modules, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "plugin.wasm"
    original = response(wasm(modules, f"file://{file}"), True)
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), True)
    assert unpack_config(stream.rewrite(original), True).typed_config.Is(http_rbac_pb2.RBAC.DESCRIPTOR)
    file.write_bytes(FIRST)
    assert unpack_config(stream.retry_pending(), True) == unpack_config(original, True)
    assert stream.rewrite(original) == original


def test_module_without_its_pull_secret_is_not_fetched(modules: Modules) -> None:
    modules.registry.push("a", "1", archive(FIRST))
    config = unpack_config(
        rewrite_response(modules, response(wasm(modules, "oci://HOST/a:1", secret=""), True), True), True
    )
    assert config.typed_config.Is(http_rbac_pb2.RBAC.DESCRIPTOR)
    assert not modules.registry.request_counts


def test_typed_struct_module_becomes_a_file(modules: Modules) -> None:
    modules.registry.replies["/x"] = Reply(FIRST)
    plain = wasm(modules)
    wasm_config = http_wasm_pb2.Wasm()
    assert plain.typed_config.Unpack(wasm_config)
    struct = typed_struct_pb2.TypedStruct(type_url=plain.typed_config.type_url)
    wasm_config.config.ClearField("configuration")
    struct.value.update(json_format.MessageToDict(wasm_config))
    plain.typed_config.Pack(struct)
    config = unpack_config(rewrite_response(modules, response(plain, True), True), True)
    assert config.typed_config.Unpack(wasm_config)
    assert wasm_config.config.vm_config.code.HasField("local")


@pytest.mark.parametrize("delta", [True, False])
def test_unavailable_module_is_retried(modules: Modules, delta: bool) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), delta)
    assert unpack_config(stream.rewrite(response(wasm(modules), delta)), delta).typed_config.Is(
        http_rbac_pb2.RBAC.DESCRIPTOR
    )
    assert stream.has_pending
    assert stream.retry_pending() == b""
    modules.registry.replies["/x"] = Reply(FIRST)
    assert unpack_config(stream.retry_pending(), delta).typed_config.Is(http_wasm_pb2.Wasm.DESCRIPTOR)
    assert not stream.has_pending


def test_removed_or_replaced_module_is_not_retried(modules: Modules) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), True)
    stream.rewrite(response(wasm(modules), True))
    stream.rewrite(
        discovery_pb2.DeltaDiscoveryResponse(type_url=EXTENSION, removed_resources=["r"]).SerializeToString()
    )
    assert not stream.has_pending
    stream.rewrite(response(wasm(modules), True))
    stream.rewrite(response(wasm(modules, f"file://{__file__}"), True))
    assert not stream.has_pending


def test_missing_pull_secret_causes_no_retry(modules: Modules) -> None:
    stream = ExtensionStream(ExtensionRewriter(modules.files, modules.counts), True)
    stream.rewrite(response(wasm(modules, "oci://HOST/a:1", secret=""), True))
    assert not stream.has_pending


def test_other_resources_stay_unchanged(modules: Modules) -> None:
    other = extension_pb2.TypedExtensionConfig(name="r")
    other.typed_config.Pack(http_rbac_pb2.RBAC())
    for raw in (response(wasm(modules, f"file://{__file__}"), True), response(other, True), b"\xff\xff", b""):
        assert rewrite_response(modules, raw, True) == raw
