"""Behaviour of the test API server that clients of a real one rely on."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ApiError, Conflict, NotFound
from testing.apiserver.definitions import definition
from testing.apiserver.server import ApiServer
from testing.apiserver.tls import make_certificate
from testing.kube.kube_access import client_of
from tests.unit.ingest.test_kube_source import GATEWAY

MAPS = "/api/v1/namespaces/a/configmaps"
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[ApiClient]:
    api_client = client_of(server)
    yield api_client
    await api_client.close()


async def call(
    client: ApiClient, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
) -> Any:
    return json.loads(
        await client.call(method, path, query, json.dumps(body).encode() if body is not None else None, kind)
    )


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": list(containers)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {**spec, "template": template},
    }


async def test_conflicting_writes_are_rejected(client: ApiClient) -> None:
    created = await call(client, "POST", MAPS, config_map(a="1"))
    with pytest.raises(Conflict):
        await call(client, "POST", MAPS, config_map())
    updated = await call(client, "PUT", f"{MAPS}/m", {**created, "data": {"a": "2"}})
    with pytest.raises(Conflict):
        await call(client, "PUT", f"{MAPS}/m", {**created, "data": {"a": "3"}})
    assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    with pytest.raises(Conflict):
        await call(client, "DELETE", f"{MAPS}/m", {"preconditions": {"resourceVersion": "1"}})
    await call(client, "DELETE", f"{MAPS}/m")
    with pytest.raises(NotFound):
        await call(client, "GET", f"{MAPS}/m")


async def test_dry_run_changes_nothing(client: ApiClient) -> None:
    await call(client, "POST", MAPS, config_map(), dryRun="All")
    with pytest.raises(NotFound):
        await call(client, "GET", f"{MAPS}/m")


async def test_json_and_merge_patches(client: ApiClient) -> None:
    await call(client, "POST", MAPS, config_map(a="1", b="2"))
    patched = await call(client, "PATCH", f"{MAPS}/m", {"data": {"a": None, "c": "3"}}, MERGE)
    assert patched["data"] == {"b": "2", "c": "3"}
    operations = [
        {"op": "test", "path": "/data/b", "value": "2"},
        {"op": "move", "from": "/data/b", "path": "/data/d~1e"},
    ]
    assert (await call(client, "PATCH", f"{MAPS}/m", operations, JSON_PATCH))["data"] == {"c": "3", "d/e": "2"}
    with pytest.raises(ApiError, match="422"):
        await call(client, "PATCH", f"{MAPS}/m", [{"op": "test", "path": "/data/c", "value": "9"}], JSON_PATCH)


async def test_strategic_merge_patch_merges_lists_by_key(client: ApiClient) -> None:
    path = "/apis/apps/v1/namespaces/a/deployments"
    one, two = {"name": "one", "image": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "two", "image": "b"}
    await call(client, "POST", path, deployment(one, two))
    containers = [
        {"name": "one", "env": [{"name": "Y", "value": "2"}]},
        {"name": "two", "$patch": "delete"},
        {"name": "three", "image": "c"},
    ]
    patched = await call(
        client, "PATCH", f"{path}/d", {"spec": {"template": {"spec": {"containers": containers}}}}, STRATEGIC
    )
    assert patched["spec"]["template"]["spec"]["containers"] == [
        {"name": "one", "image": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
        {"name": "three", "image": "c"},
    ]


async def test_server_side_apply_tracks_field_ownership(client: ApiClient) -> None:
    path = "/apis/apps/v1/namespaces/a/deployments/d"

    async def apply(manager: str, *containers: dict[str, Any], force: str = "false", **spec: Any) -> Any:
        return await call(
            client, "PATCH", path, deployment(*containers, **spec), APPLY, fieldManager=manager, force=force
        )

    await apply("one", {"name": "a", "image": "x"}, replicas=1)
    merged = await apply("two", {"name": "b", "image": "y"})
    assert [c["name"] for c in merged["spec"]["template"]["spec"]["containers"]] == ["a", "b"]
    with pytest.raises(Conflict, match='conflicts with "one"'):
        await apply("two", {"name": "b", "image": "y"}, replicas=2)
    forced = await apply("two", {"name": "b", "image": "y"}, replicas=2, force="true")
    assert forced["spec"]["replicas"] == 2
    emptied = await apply("two")
    assert [c["name"] for c in emptied["spec"]["template"]["spec"]["containers"]] == ["a"]
    assert emptied["spec"]["replicas"] == 1  # default
    managers = {(m["manager"], m["operation"]) for m in emptied["metadata"]["managedFields"]}
    assert managers == {("one", "Apply"), ("two", "Apply")}


async def test_server_side_apply_orders_list_items(client: ApiClient) -> None:
    path = "/apis/apps/v1/namespaces/a/deployments/d"

    async def apply(manager: str, *names: str) -> list[str]:
        containers = [{"name": name, "image": "x"} for name in names]
        response = await call(client, "PATCH", path, deployment(*containers), APPLY, fieldManager=manager)
        return [c["name"] for c in response["spec"]["template"]["spec"]["containers"]]

    assert await apply("one", "b", "d") == ["b", "d"]
    assert await apply("two", "c", "d") == ["b", "c", "d"]
    assert await apply("one", "a", "d", "b") == ["a", "d", "b", "c"]


async def test_repeated_apply_without_fields_is_a_no_op(client: ApiClient) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    responses = [
        await call(client, "PATCH", "/api/v1/namespaces/shop", namespace, APPLY, fieldManager="one") for _ in range(2)
    ]
    assert responses[0] == responses[1]
    assert [entry["fieldsV1"] for entry in responses[1]["metadata"]["managedFields"]] == [{}]


async def test_status_is_a_subresource(client: ApiClient, server: ApiServer) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"x": 1},
        "status": {"phase": "Running"},
    }
    created = await call(client, "POST", "/api/v1/namespaces/a/pods", pod)
    assert "status" not in created
    updated = await call(
        client, "PATCH", "/api/v1/namespaces/a/pods/p/status", {"spec": {"x": 2}, "status": {"phase": "Failed"}}, MERGE
    )
    assert (updated["spec"], updated["status"], updated["metadata"]["generation"]) == ({"x": 1}, {"phase": "Failed"}, 1)


async def test_finalizers_delay_deletion(client: ApiClient) -> None:
    await call(client, "POST", MAPS, {**config_map(), "metadata": {"name": "m", "finalizers": ["a/b"]}})
    assert "deletionTimestamp" in (await call(client, "DELETE", f"{MAPS}/m"))["metadata"]
    await call(client, "PATCH", f"{MAPS}/m", {"metadata": {"finalizers": None}}, MERGE)
    with pytest.raises(NotFound):
        await call(client, "GET", f"{MAPS}/m")


async def test_schemas_are_enforced(client: ApiClient, server: ApiServer) -> None:
    plain = definition(GATEWAY, "v1")
    port = {"type": "integer", "minimum": 1, "maximum": 65535}
    spec = {
        "type": "object",
        "required": ["port"],
        "properties": {"port": port, "mode": {"type": "string", "enum": ["A", "B"], "default": "A"}},
    }
    plain["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    server.put(plain)
    path, type_meta = (
        "/apis/networking.istio.io/v1/namespaces/a/gateways",
        {"apiVersion": "networking.istio.io/v1", "kind": "Gateway"},
    )

    async def create(name: str, spec: Any, **query: str) -> Any:
        return await call(client, "POST", path, {**type_meta, "metadata": {"name": name}, "spec": spec}, **query)

    assert (await create("a", {"port": 80, "unknown": 1}))["spec"] == {"mode": "A", "port": 80}
    for invalid, field in (
        ({}, "spec.port"),
        ({"port": 0}, "spec.port"),
        ({"port": "x"}, "spec.port"),
        ({"port": 1, "mode": "C"}, "spec.mode"),
    ):
        with pytest.raises(ApiError, match=field):
            await create("wrong", invalid)
    with pytest.raises(ApiError, match=r'unknown field "spec.unknown"'):
        await create("strict", {"port": 80, "unknown": 1}, fieldValidation="Strict")


@contextlib.asynccontextmanager
async def webhook(folder: pathlib.Path) -> AsyncIterator[dict[str, Any]]:
    """A webhook over TLS that labels objects, and denies objects named "bad"."""

    async def review(request: web.Request) -> web.Response:
        admission_request = (await request.json())["request"]
        patch = base64.b64encode(
            json.dumps([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]).encode()
        ).decode()
        response: dict[str, Any] = {
            "uid": admission_request["uid"],
            "allowed": admission_request["name"] != "bad",
            "status": {"message": "it is bad"},
        }
        if request.path == "/mutate":
            response |= {"patch": patch, "patchType": "JSONPatch", "allowed": True}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    certificate, app = make_certificate(), web.Application()
    app.router.add_post("/{path}", review)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate.context(folder)).start()
    yield {"url": f"https://127.0.0.1:{runner.addresses[0][1]}", "caBundle": certificate.data}
    await runner.cleanup()


def configuration(kind: str, path: str, config: dict[str, Any], **more: Any) -> dict[str, Any]:
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    hook = {"name": "hook.test", "clientConfig": {**config, "url": f"{config['url']}/{path}"}, "rules": rules, **more}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": path},
        "webhooks": [hook],
    }


async def test_admission_webhooks_are_called(client: ApiClient, server: ApiServer, tmp_path: pathlib.Path) -> None:
    async with webhook(tmp_path) as config:
        server.put(configuration("MutatingWebhookConfiguration", "mutate", config))
        server.put(
            configuration(
                "ValidatingWebhookConfiguration", "validate", config, objectSelector={"matchLabels": {"seen": "yes"}}
            )
        )
        assert (await call(client, "POST", MAPS, config_map()))["metadata"]["labels"] == {"seen": "yes"}
        with pytest.raises(ApiError, match="it is bad"):
            await call(client, "POST", MAPS, {**config_map(), "metadata": {"name": "bad"}})
    with pytest.raises(ApiError, match="failed calling webhook"):
        await call(client, "POST", MAPS, {**config_map(), "metadata": {"name": "other"}})
    server.put(configuration("MutatingWebhookConfiguration", "mutate", config, failurePolicy="Ignore"))
    assert (
        "labels" not in (await call(client, "POST", MAPS, {**config_map(), "metadata": {"name": "other"}}))["metadata"]
    )


async def test_discovery_lists_served_versions(client: ApiClient, server: ApiServer) -> None:
    server.put(definition(GATEWAY, "v1", "v1beta1"))
    groups = {
        group["name"]: [v["version"] for v in group["versions"]]
        for group in (await call(client, "GET", "/apis"))["groups"]
    }
    assert groups["networking.istio.io"] == ["v1", "v1beta1"]
    assert "networking.istio.io" in json.dumps(await call(client, "GET", "/openapi/v3/apis/networking.istio.io/v1"))
    older = await client.call("GET", "/openapi/v2")
    assert older.startswith(b"\x0a\x032.0")
    assert b"/apis/networking.istio.io/v1/namespaces/{namespace}/gateways/{name}" in older
    with pytest.raises(ApiError, match="404"):
        await call(client, "GET", "/apis/nothing.io/v1")
