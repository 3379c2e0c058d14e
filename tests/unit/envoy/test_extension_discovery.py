"""What filters are told that ask for the configuration of an extension: their module, and to whom its pull secret is told."""

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
FETCHING = {**WEB.metadata, "MODULE_FETCH": "true"}
DOCKER = "kubernetes.io/dockerconfigjson"
SECRET_VARIABLE = "ISTIO_META_WASM_IMAGE_PULL_SECRET"


def asked(made: World, name: str, by: Proxy = WEB) -> dict[str, Any] | None:
    """The configuration of a name as proto JSON; None where there is none."""
    groups = proxy_plan(made.mesh, made.connect(by)).groups_of(EXTENSION, frozenset((name,))) or ()
    found = [r for group in groups for r in group.fn(made.mesh, *group.args).values()]
    assert not made.failures
    if not found:
        return None
    (resource,) = found
    assert resource.name == name
    plain: dict[str, Any] = json_format.MessageToDict(any_pb2.Any.FromString(resource.any))
    return plain


def plugin(spec: str, name: str = "x", namespace: str = "a", url: str = "oci://r.example.com/x:1", **more: Any) -> Any:
    return make("WasmPlugin", name, f"{{url: '{url}'{', ' + spec if spec else ''}}}", namespace, **more)


def config(spec: str = "", by: Proxy = WEB, url: str = "oci://r.example.com/x:1", *others: Any) -> dict[str, Any]:
    found = asked(world(plugin(spec, url=url), *others), f"{PREFIX}a.x~istio-translated-wasmplugin", by)
    assert found is not None
    plain: dict[str, Any] = found["typedConfig"]["config"]
    return plain


def variables(found: dict[str, Any]) -> dict[str, str]:
    """The variables of a module without its version."""
    values: dict[str, str] = found["vmConfig"]["environmentVariables"]["keyValues"]
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
def test_a_module_is_fetched_from_its_url_or_is_a_file(url: str, code: str) -> None:
    found = config(url=url)["vmConfig"]["code"]
    if code:
        assert found["remote"]["httpUri"] == {"uri": code, "cluster": "_", "timeout": "30s"}
    else:
        assert found == {"local": {"filename": "/opt/x.wasm"}}


@pytest.mark.parametrize(
    ("more", "rules"),
    [
        ("", {}),
        ("failStrategy: FAIL_OPEN", None),
        ("type: NETWORK", {}),
        ("type: NETWORK, failStrategy: FAIL_OPEN", None),
    ],
)
def test_a_stock_envoy_without_an_agent_gets_what_stands_in_for_a_module(more: str, rules: Any) -> None:
    name = f"{PREFIX}a.x~istio-translated-wasmplugin"
    found = asked(world(plugin(more)), name, STOCK)
    assert found is not None
    kind = "network" if "NETWORK" in more else "http"
    assert found["typedConfig"]["@type"] == f"type.googleapis.com/envoy.extensions.filters.{kind}.rbac.v3.RBAC"
    assert found["typedConfig"].get("rules") == rules
    file = asked(world(plugin(more, url="file:///opt/x.wasm")), name, STOCK)
    assert file is not None
    assert file["typedConfig"]["config"]["vmConfig"]["code"] == {"local": {"filename": "/opt/x.wasm"}}


def test_a_stock_envoy_with_an_agent_that_fetches_gets_the_module() -> None:
    found = asked(
        world(plugin("")), f"{PREFIX}a.x~istio-translated-wasmplugin", msgspec.structs.replace(STOCK, metadata=FETCHING)
    )
    assert found is not None
    assert "remote" in found["typedConfig"]["config"]["vmConfig"]["code"]


def test_what_a_module_is_told_goes_with_it() -> None:
    env = "vmConfig: {env: [{name: A, value: b}, {name: H, valueFrom: HOST}]}"
    found = config(
        f"pluginName: root, imagePullPolicy: IfNotPresent, pluginConfig: {{z: 1, a: [true, null, x]}}, {env}, sha256: {'ab' * 32}"
    )
    assert (found["name"], found["rootId"]) == ("a.x~istio-translated-wasmplugin", "root")
    assert found["configuration"]["value"] == '{"a":[true,null,"x"],"z":1}'
    assert found["vmConfig"]["runtime"] == "envoy.wasm.runtime.v8"
    assert found["vmConfig"]["environmentVariables"]["hostEnvKeys"] == ["H"]
    assert found["vmConfig"]["code"]["remote"]["sha256"] == "ab" * 32
    assert variables(found) == {"A": "b", "ISTIO_META_WASM_IMAGE_PULL_POLICY": "IfNotPresent"}


@pytest.mark.parametrize(
    ("strategy", "policy"), [("FAIL_CLOSE", "FAIL_CLOSED"), ("FAIL_OPEN", "FAIL_OPEN"), ("FAIL_RELOAD", "FAIL_RELOAD")]
)
def test_the_strategy_is_envoys(strategy: str, policy: str) -> None:
    assert config(f"failStrategy: {strategy}")["failurePolicy"] == policy


@pytest.mark.parametrize(
    ("kind", "type_"), [("HTTP", "http"), ("NETWORK", "network"), ("UNSPECIFIED_PLUGIN_TYPE", "http")]
)
def test_a_module_is_for_requests_or_connections(kind: str, type_: str) -> None:
    found = asked(world(plugin(f"type: {kind}")), f"{PREFIX}a.x~istio-translated-wasmplugin")
    assert found is not None
    assert found["typedConfig"]["@type"] == f"type.googleapis.com/envoy.extensions.filters.{type_}.wasm.v3.Wasm"


def test_a_user_cannot_pass_for_the_control_plane() -> None:
    env = f"vmConfig: {{env: [{{name: {SECRET_VARIABLE}, value: forged}}]}}, imagePullSecret: s"
    assert variables(config(env)) == {SECRET_VARIABLE: ""}


@pytest.mark.parametrize(("by", "told"), [(IDENTIFIED, '{"auths": {}}'), (WEB, ""), (STRANGER, "")])
def test_a_pull_secret_is_told_to_those_who_proved_their_namespace(by: Proxy, told: str) -> None:
    secret = data_secret("s", {".dockerconfigjson": b'{"auths": {}}'}, "a") | {"type": DOCKER}
    elsewhere = data_secret("s", {".dockerconfigjson": b"other"}, "b") | {"type": DOCKER}
    assert variables(config("imagePullSecret: s", by, "r.example.com/x", secret, elsewhere)) == {SECRET_VARIABLE: told}


def test_roots_in_a_config_map_are_no_pull_secret() -> None:
    secret = data_secret("s", {".dockerconfigjson": b"{}"}, "a") | {"type": DOCKER}
    assert variables(config("imagePullSecret: 'configmap://s'", IDENTIFIED, "r.example.com/x", secret)) == {
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
def test_a_secret_of_another_type_or_namespace_is_not_told(secret: Any) -> None:
    assert variables(config("imagePullSecret: s", IDENTIFIED, "r.example.com/x", secret)) == {SECRET_VARIABLE: ""}
    assert variables(config("imagePullSecret: 'kubernetes://b/s'", IDENTIFIED, "r.example.com/x", secret)) == {
        SECRET_VARIABLE: ""
    }


@pytest.mark.parametrize(
    "name", [f"{PREFIX}a.s", f"{PREFIX}b.w", f"{PREFIX}a.other", f"{PREFIX}a", "x", f"{PREFIX}a.gone"]
)
def test_nothing_else_is_told(name: str) -> None:
    """Scripts are in the listener, and the extensions of others are nobody's business."""
    objects = [
        make("TrafficExtension", "s", "{lua: {inlineCode: 'x = 1'}}"),
        make("TrafficExtension", "w", "{wasm: {url: r.example.com/w}}", "b"),
        make("TrafficExtension", "other", "{selector: {matchLabels: {app: other}}, wasm: {url: r.example.com/w}}"),
    ]
    assert asked(world(*objects), name, IDENTIFIED) is None


def test_the_version_is_another_one_once_the_object_says_something_else() -> None:
    def version(**more: Any) -> str:
        found = asked(
            world(plugin(more.pop("spec", "priority: 1"), **more)), f"{PREFIX}a.x~istio-translated-wasmplugin"
        )
        assert found is not None
        return str(
            found["typedConfig"]["config"]["vmConfig"]["environmentVariables"]["keyValues"][
                "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
            ]
        )

    assert version() == version(annotations="{a: b}")
    assert len({version(), version(spec="priority: 2"), version(day=2)}) == 3
