"""/inject and /validate over HTTP: valid and invalid requests, and metrics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testing.kube.webhooks import make_injector, pod, review, serving
from webhook.server.bodies import LARGEST_CONFIG_REVIEW

pytestmark = pytest.mark.slow

DEEP = 100_000


async def test_injection_patch_adds_the_proxy() -> None:
    async with serving(make_injector()) as client:
        injected = await client.inject(pod())
        assert [c["name"] for c in injected["spec"]["containers"]] == ["app", "istio-proxy"]
        for line in (
            "sidecar_injection_requests_total 1",
            "sidecar_injection_success_total 1",
            "sidecar_injection_time_seconds_count 1",
        ):
            assert client.metric(line)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_response_has_the_version_and_uid_of_the_review(version: str) -> None:
    async with serving(make_injector()) as client:
        status, body = await client.send("/inject", review(pod(), version))
        response = json.loads(body)
        assert (status, response["apiVersion"], response["kind"]) == (
            200,
            f"admission.k8s.io/{version}",
            "AdmissionReview",
        )
        assert (response["response"]["uid"], response["response"]["patchType"]) == ("the-uid", "JSONPatch")


async def test_disabled_injection_is_allowed_without_a_patch() -> None:
    async with serving(make_injector()) as client:
        response = await client.response("/inject", review(pod(labels={"sidecar.istio.io/inject": "false"})))
        assert response == {"uid": "the-uid", "allowed": True}
        assert client.metric("sidecar_injection_skip_total 1")


async def test_failed_injection_is_refused_with_its_reason() -> None:
    async with serving(make_injector()) as client:
        response = await client.response(
            "/inject", review(pod(annotations={"sidecar.istio.io/interceptionMode": "SOME"}))
        )
        assert not response["allowed"]
        assert response["status"]["message"].startswith("failed to run injection template: ")
        assert (
            "invalid value 'SOME' for annotation 'sidecar.istio.io/interceptionMode'" in response["status"]["message"]
        )
        assert client.metric("sidecar_injection_failure_total 1")
        assert client.metric("sidecar_injection_success_total 1")


async def test_namespace_defaults_to_that_of_the_review() -> None:
    async with serving(make_injector()) as client:
        unnamed_pod = pod(namespace="")
        response = await client.response("/inject", review(unnamed_pod, namespace="kube-system"))
        assert response == {"uid": "the-uid", "allowed": True}


async def test_managed_fields_are_ignored() -> None:
    async with serving(make_injector()) as client:
        injected = await client.inject(pod(managedFields=[{"manager": "kubectl"}]))
        assert injected["metadata"]["managedFields"] == [{"manager": "kubectl"}]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/inject/cluster/east/net/n1", {"ISTIO_META_CLUSTER_ID": "east", "ISTIO_META_NETWORK": "n1"}),
        ("/inject/:ENV:A=b:ENV:=x:ENV:C=", {"A": "b", "C": ""}),
    ],
)
async def test_variables_from_the_path(path: str, expected: dict[str, str]) -> None:
    async with serving(make_injector()) as client:
        injected = await client.inject(pod(), path)
        variables = {e["name"]: e.get("value") for e in injected["spec"]["containers"][1]["env"]}
        assert expected.items() <= variables.items()


@pytest.mark.parametrize("path", ["/inject", "/validate"])
async def test_invalid_reviews(path: str) -> None:
    async with serving(make_injector()) as client:
        assert await client.send(path, b"") == (400, b"no body found\n")
        assert (await client.send(path, b"{}", "text/plain"))[0] == 415
        assert (await client.send(path, b"{}", "application/json; charset=utf-8"))[0] == 415
        for body in (b"{", b"[]", b"{}", b'{"kind": "AdmissionReview", "apiVersion": "v1"}', b"\xff", b'{"kind": 1}'):
            response = await client.response(path, body)
            assert not response["allowed"]
            assert response["status"]["message"]


async def test_injection_without_a_configuration_returns_404() -> None:
    async with serving(None) as client:
        assert (await client.send("/inject", review(pod())))[0] == 404


@pytest.mark.parametrize("path", ["/inject", "/validate"])
async def test_cve_2022_39278_oversized_body_is_refused(path: str) -> None:
    async with serving(make_injector()) as client:
        status, body = await client.send(path, b"[" + b" " * LARGEST_CONFIG_REVIEW)
        assert status == 400
        assert b"too large" in body
        assert (await client.response(path, review(pod() if path == "/inject" else SERVICE_ENTRY)))["allowed"]


@pytest.mark.parametrize("path", ["/inject", "/validate"])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","object":'
        + b'{"a":' * DEEP
        + b"1"
        + b"}" * DEEP
        + b"}}",
    ],
    ids=["lists", "objects", "the object"],
)
async def test_cve_2022_24726_deeply_nested_body_is_refused(path: str, body: bytes) -> None:
    async with serving(make_injector()) as client:
        response = await client.response(path, body)
        assert not response["allowed"]
        assert (await client.response(path, review(pod() if path == "/inject" else SERVICE_ENTRY)))["allowed"]


@pytest.mark.parametrize("field", ["env", "resources", "lifecycle"])
async def test_cve_2022_24726_decodable_nesting_is_answered(field: str) -> None:
    container = {"name": "istio-proxy", "image": "auto", field: json.loads('{"a":' * 900 + "1" + "}" * 900)}
    async with serving(make_injector()) as client:
        response = await client.response("/inject", review({**pod(), "spec": {"containers": [container]}}))
        assert isinstance(response["allowed"], bool)
        assert (await client.response("/inject", review(pod())))["allowed"]


SERVICE_ENTRY: dict[str, Any] = {
    "apiVersion": "networking.istio.io/v1",
    "kind": "ServiceEntry",
    "metadata": {"name": "one", "namespace": "shop"},
    "spec": {
        "hosts": ["one.example.com"],
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "resolution": "NONE",
    },
}


def entry(**changes: Any) -> dict[str, Any]:
    return {**SERVICE_ENTRY, "spec": {**SERVICE_ENTRY["spec"], **changes}}


async def test_valid_configuration_is_allowed_in_every_version() -> None:
    async with serving(None) as client:
        assert await client.response("/validate", review(SERVICE_ENTRY)) == {"uid": "the-uid", "allowed": True}
        assert (
            await client.response("/validate", review({**SERVICE_ENTRY, "apiVersion": "networking.istio.io/v1beta9"}))
        )["allowed"]
        resource = {"group": "networking.istio.io", "version": "v1", "resource": "serviceentries"}
        await client.response("/validate", review(SERVICE_ENTRY, resource=resource))
        assert client.metric(
            'galley_validation_passed{group="networking.istio.io",resource="serviceentries",version="v1"} 1'
        )


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({**SERVICE_ENTRY, "kind": "Nothing"}, "unrecognized type Nothing"),
        ({**SERVICE_ENTRY, "extra": 1}, 'unknown field "extra" on ServiceEntry resource shop/one'),
        (entry(unknown=1), "error decoding configuration: spec.unknown: unknown field"),
        (entry(hosts="a"), "error decoding configuration: spec.hosts: expected a list"),
        (entry(hosts=[]), "configuration is invalid: spec.hosts"),
        (
            {
                **SERVICE_ENTRY,
                "metadata": {
                    **SERVICE_ENTRY["metadata"],
                    "annotations": {"internal.istio.io/webhook-always-reject": "true"},
                },
            },
            "configuration is invalid: it has the annotation internal.istio.io/webhook-always-reject",
        ),
    ],
)
async def test_invalid_configuration_is_refused_with_its_path(manifest: dict[str, Any], message: str) -> None:
    async with serving(None) as client:
        response = await client.response("/validate", review(manifest))
        assert not response["allowed"]
        assert response["status"]["message"].startswith(message)


async def test_deletions_are_allowed_and_dry_runs_are_not_counted() -> None:
    async with serving(None) as client:
        assert (await client.response("/validate", review(None, operation="DELETE")))["allowed"]
        await client.response("/validate", review(entry(hosts=[]), dryRun=True))
        assert "invalid_resource" not in client.metrics.exposition().decode()
        await client.response("/validate", review(entry(hosts=[])))
        assert 'reason="invalid_resource"' in client.metrics.exposition().decode()
