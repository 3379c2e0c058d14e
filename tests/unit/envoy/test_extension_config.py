"""Extension configurations of Wasm plugins and their pull secrets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.protobuf import any_pb2, json_format

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.xds_types import EXTENSION
from pilot.mesh.model.proxy import Proxy
from testing.mesh.listeners import WEB
from testing.mesh.objects import make, world
from testing.mesh.world import World
from testing.security.credentials import data_secret

PREFIX = "extensions.istio.io/trafficextension/"
IDENTIFIED = msgspec.structs.replace(WEB, identity="spiffe://cluster.local/ns/a/sa/web")
STRANGER = msgspec.structs.replace(WEB, identity="spiffe://cluster.local/ns/b/sa/web")
STOCK = msgspec.structs.replace(WEB, extensions=frozenset(("envoy.filters.http.wasm", "envoy.filters.network.wasm")))
FETCHER_METADATA = {**WEB.metadata, "MODULE_FETCH": "true"}
DOCKER = "kubernetes.io/dockerconfigjson"
SECRET_VARIABLE = "ISTIO_META_WASM_IMAGE_PULL_SECRET"


def extension_config(world: World, name: str, by: Proxy = WEB) -> dict[str, Any] | None:
    """Return the extension configuration with this name as proto JSON, or None."""
    groups = proxy_plan(world.mesh, world.connect(by)).groups_of(EXTENSION, frozenset((name,))) or ()
    resources = [r for group in groups for r in group.fn(world.mesh, *group.args).values()]
    assert not world.failures
    if not resources:
        return None
    (resource,) = resources
    assert resource.name == name
    plain: dict[str, Any] = json_format.MessageToDict(any_pb2.Any.FromString(resource.any))
    return plain


def plugin(spec: str, name: str = "x", namespace: str = "a", url: str = "oci://r.example.com/x:1", **more: Any) -> Any:
    return make("WasmPlugin", name, f"{{url: '{url}'{', ' + spec if spec else ''}}}", namespace, **more)


def wasm_config(spec: str = "", by: Proxy = WEB, url: str = "oci://r.example.com/x:1", *others: Any) -> dict[str, Any]:
    extension = extension_config(world(plugin(spec, url=url), *others), f"{PREFIX}a.x~istio-translated-wasmplugin", by)
    assert extension is not None
    plain: dict[str, Any] = extension["typedConfig"]["config"]
    return plain


def variables(wasm_config: dict[str, Any]) -> dict[str, str]:
    """Return the environment variables of a module except its version."""
    values: dict[str, str] = wasm_config["vmConfig"]["environmentVariables"]["keyValues"]
    return {k: v for k, v in values.items() if k != "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"}


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("oci://r.example.com/x:1", "oci://r.example.com/x:1"),
        ("r.example.com:5000/x@sha256:00", "oci://r.example.com:5000/x@sha256:00"),
        ("https://w.example.com/x.wasm", "https://w.example.com/x.wasm"),
        ("file:///opt/x.wasm", ""),
    ],
)
def test_module_sources(url: str, code: str) -> None:
    source = wasm_config(url=url)["vmConfig"]["code"]
    if code:
        assert source["remote"]["httpUri"] == {"uri": code, "cluster": "_", "timeout": "30s"}
    else:
        assert source == {"local": {"filename": "/opt/x.wasm"}}


@pytest.mark.parametrize(
    ("spec", "rules"),
    [
        ("", {}),
        ("failStrategy: FAIL_OPEN", None),
        ("type: NETWORK", {}),
        ("type: NETWORK, failStrategy: FAIL_OPEN", None),
    ],
)
def test_stock_envoy_without_module_fetch_gets_rbac_instead(spec: str, rules: Any) -> None:
    name = f"{PREFIX}a.x~istio-translated-wasmplugin"
    extension = extension_config(world(plugin(spec)), name, STOCK)
    assert extension is not None
    layer = "network" if "NETWORK" in spec else "http"
    assert extension["typedConfig"]["@type"] == f"type.googleapis.com/envoy.extensions.filters.{layer}.rbac.v3.RBAC"
    assert extension["typedConfig"].get("rules") == rules
    file = extension_config(world(plugin(spec, url="file:///opt/x.wasm")), name, STOCK)
    assert file is not None
    assert file["typedConfig"]["config"]["vmConfig"]["code"] == {"local": {"filename": "/opt/x.wasm"}}


def test_stock_envoy_with_module_fetch_gets_the_module() -> None:
    extension = extension_config(
        world(plugin("")),
        f"{PREFIX}a.x~istio-translated-wasmplugin",
        msgspec.structs.replace(STOCK, metadata=FETCHER_METADATA),
    )
    assert extension is not None
    assert "remote" in extension["typedConfig"]["config"]["vmConfig"]["code"]


def test_plugin_configuration() -> None:
    env = "vmConfig: {env: [{name: A, value: b}, {name: H, valueFrom: HOST}]}"
    plugin_config = wasm_config(
        f"pluginName: root, imagePullPolicy: IfNotPresent, pluginConfig: {{z: 1, a: [true, null, x]}}, {env}, sha256: {'ab' * 32}"
    )
    assert (plugin_config["name"], plugin_config["rootId"]) == ("a.x~istio-translated-wasmplugin", "root")
    assert plugin_config["configuration"]["value"] == '{"a":[true,null,"x"],"z":1}'
    assert plugin_config["vmConfig"]["runtime"] == "envoy.wasm.runtime.v8"
    assert plugin_config["vmConfig"]["environmentVariables"]["hostEnvKeys"] == ["H"]
    assert plugin_config["vmConfig"]["code"]["remote"]["sha256"] == "ab" * 32
    assert variables(plugin_config) == {"A": "b", "ISTIO_META_WASM_IMAGE_PULL_POLICY": "IfNotPresent"}


@pytest.mark.parametrize(
    ("strategy", "policy"), [("FAIL_CLOSE", "FAIL_CLOSED"), ("FAIL_OPEN", "FAIL_OPEN"), ("FAIL_RELOAD", "FAIL_RELOAD")]
)
def test_failure_policy(strategy: str, policy: str) -> None:
    assert wasm_config(f"failStrategy: {strategy}")["failurePolicy"] == policy


@pytest.mark.parametrize(
    ("plugin_type", "layer"), [("HTTP", "http"), ("NETWORK", "network"), ("UNSPECIFIED_PLUGIN_TYPE", "http")]
)
def test_plugin_types(plugin_type: str, layer: str) -> None:
    extension = extension_config(world(plugin(f"type: {plugin_type}")), f"{PREFIX}a.x~istio-translated-wasmplugin")
    assert extension is not None
    assert extension["typedConfig"]["@type"] == f"type.googleapis.com/envoy.extensions.filters.{layer}.wasm.v3.Wasm"


def test_user_cannot_set_the_pull_secret_variable() -> None:
    env = f"vmConfig: {{env: [{{name: {SECRET_VARIABLE}, value: forged}}]}}, imagePullSecret: s"
    assert variables(wasm_config(env)) == {SECRET_VARIABLE: ""}


@pytest.mark.parametrize(("client", "expected"), [(IDENTIFIED, '{"auths": {}}'), (WEB, ""), (STRANGER, "")])
def test_pull_secret_needs_a_verified_namespace(client: Proxy, expected: str) -> None:
    secret = data_secret("s", {".dockerconfigjson": b'{"auths": {}}'}, "a") | {"type": DOCKER}
    remote_secret = data_secret("s", {".dockerconfigjson": b"other"}, "b") | {"type": DOCKER}
    assert variables(wasm_config("imagePullSecret: s", client, "r.example.com/x", secret, remote_secret)) == {
        SECRET_VARIABLE: expected
    }


def test_config_map_is_not_a_pull_secret() -> None:
    secret = data_secret("s", {".dockerconfigjson": b"{}"}, "a") | {"type": DOCKER}
    assert variables(wasm_config("imagePullSecret: 'configmap://s'", IDENTIFIED, "r.example.com/x", secret)) == {
        SECRET_VARIABLE: ""
    }


@pytest.mark.parametrize(
    "secret",
    [
        data_secret("s", {".dockerconfigjson": b"{}"}, "a"),
        data_secret("s", {"cert": b"{}"}, "a") | {"type": DOCKER},
        data_secret("s", {".dockerconfigjson": b"{}"}, "b") | {"type": DOCKER},
    ],
)
def test_pull_secret_of_another_type_or_namespace_is_ignored(secret: Any) -> None:
    assert variables(wasm_config("imagePullSecret: s", IDENTIFIED, "r.example.com/x", secret)) == {SECRET_VARIABLE: ""}
    assert variables(wasm_config("imagePullSecret: 'kubernetes://b/s'", IDENTIFIED, "r.example.com/x", secret)) == {
        SECRET_VARIABLE: ""
    }


@pytest.mark.parametrize(
    "name", [f"{PREFIX}a.s", f"{PREFIX}b.w", f"{PREFIX}a.other", f"{PREFIX}a", "x", f"{PREFIX}a.gone"]
)
def test_other_extensions_have_no_configuration(name: str) -> None:
    """Lua scripts are inline in the listener, and extensions of other workloads are not sent."""
    objects = [
        make("TrafficExtension", "s", "{lua: {inlineCode: 'x = 1'}}"),
        make("TrafficExtension", "w", "{wasm: {url: r.example.com/w}}", "b"),
        make("TrafficExtension", "other", "{selector: {matchLabels: {app: other}}, wasm: {url: r.example.com/w}}"),
    ]
    assert extension_config(world(*objects), name, IDENTIFIED) is None


def test_resource_version_changes_with_the_object() -> None:
    def version(**more: Any) -> str:
        extension = extension_config(
            world(plugin(more.pop("spec", "priority: 1"), **more)), f"{PREFIX}a.x~istio-translated-wasmplugin"
        )
        assert extension is not None
        return str(
            extension["typedConfig"]["config"]["vmConfig"]["environmentVariables"]["keyValues"][
                "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
            ]
        )

    assert version() == version(annotations="{a: b}")
    assert len({version(), version(spec="priority: 2"), version(day=2)}) == 3
