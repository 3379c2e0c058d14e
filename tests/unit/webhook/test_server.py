"""/inject and /validate over HTTP: what is answered to good and to bad requests, and what is counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testing.kube.webhooks import make_injector, pod, review, serving
from webhook.server.application import LARGEST_BODY

DEEP = 100_000


async def test_a_pod_is_answered_with_a_patch_that_adds_the_proxy() -> None:
    async with serving(make_injector()) as asked:
        found = await asked.inject(pod())
        assert [c["name"] for c in found["spec"]["containers"]] == ["app", "istio-proxy"]
        for line in (
            "sidecar_injection_requests_total 1",
            "sidecar_injection_success_total 1",
            "sidecar_injection_time_seconds_count 1",
        ):
            assert asked.metric(line)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_the_answer_has_the_version_and_the_uid_of_the_review(version: str) -> None:
    async with serving(make_injector()) as asked:
        status, body = await asked.send("/inject", review(pod(), version))
        answer = json.loads(body)
        assert (status, answer["apiVersion"], answer["kind"]) == (200, f"admission.k8s.io/{version}", "AdmissionReview")
        assert (answer["response"]["uid"], answer["response"]["patchType"]) == ("the-uid", "JSONPatch")


async def test_a_pod_that_wants_no_proxy_is_allowed_without_a_patch() -> None:
    async with serving(make_injector()) as asked:
        answer = await asked.response("/inject", review(pod(labels={"sidecar.istio.io/inject": "false"})))
        assert answer == {"uid": "the-uid", "allowed": True}
        assert asked.metric("sidecar_injection_skip_total 1")


async def test_a_pod_that_cannot_be_injected_is_refused_with_the_reason() -> None:
    async with serving(make_injector()) as asked:
        answer = await asked.response("/inject", review(pod(annotations={"sidecar.istio.io/interceptionMode": "SOME"})))
        assert not answer["allowed"]
        assert answer["status"]["message"].startswith("failed to run injection template: ")
        assert "invalid value 'SOME' for annotation 'sidecar.istio.io/interceptionMode'" in answer["status"]["message"]
        assert asked.metric("sidecar_injection_failure_total 1")
        assert asked.metric("sidecar_injection_success_total 1")


async def test_the_namespace_of_the_review_is_the_pods_where_it_says_none() -> None:
    async with serving(make_injector()) as asked:
        what = pod(namespace="")
        answer = await asked.response("/inject", review(what, namespace="kube-system"))
        assert answer == {"uid": "the-uid", "allowed": True}


async def test_managed_fields_are_not_looked_at() -> None:
    async with serving(make_injector()) as asked:
        found = await asked.inject(pod(managedFields=[{"manager": "kubectl"}]))
        assert found["metadata"]["managedFields"] == [{"manager": "kubectl"}]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/inject/cluster/east/net/n1", {"ISTIO_META_CLUSTER_ID": "east", "ISTIO_META_NETWORK": "n1"}),
        ("/inject/cluster/east/", {"ISTIO_META_CLUSTER_ID": "east"}),
        ("/inject/key/a--slash--b/odd", {"KEY": "a/b"}),
        ("/inject/:ENV:A=b:ENV:=x:ENV:C=", {"A": "b", "C": ""}),
    ],
)
async def test_the_path_sets_variables_of_the_proxy(path: str, wanted: dict[str, str]) -> None:
    async with serving(make_injector()) as asked:
        found = await asked.inject(pod(), path)
        variables = {e["name"]: e.get("value") for e in found["spec"]["containers"][1]["env"]}
        assert wanted.items() <= variables.items()


@pytest.mark.parametrize("path", ["/inject", "/validate"])
async def test_requests_that_are_no_reviews(path: str) -> None:
    async with serving(make_injector()) as asked:
        assert await asked.send(path, b"") == (400, b"no body found\n")
        assert (await asked.send(path, b"{}", "text/plain"))[0] == 415
        assert (await asked.send(path, b"{}", "application/json; charset=utf-8"))[0] == 415
        for body in (b"{", b"[]", b"{}", b'{"kind": "AdmissionReview", "apiVersion": "v1"}', b"\xff", b'{"kind": 1}'):
            answer = await asked.response(path, body)
            assert not answer["allowed"]
            assert answer["status"]["message"]


async def test_injection_is_not_found_without_a_configuration() -> None:
    async with serving(None) as asked:
        assert (await asked.send("/inject", review(pod())))[0] == 404


@pytest.mark.parametrize("path", ["/inject", "/validate"])
async def test_cve_2022_39278_a_huge_body_is_refused_before_it_is_read(path: str) -> None:
    async with serving(make_injector()) as asked:
        status, body = await asked.send(path, b"[" + b" " * LARGEST_BODY)
        assert status == 400
        assert b"too large" in body
        assert (await asked.response(path, review(pod() if path == "/inject" else SERVICE_ENTRY)))["allowed"]


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
async def test_cve_2022_24726_a_deeply_nested_body_is_refused(path: str, body: bytes) -> None:
    async with serving(make_injector()) as asked:
        answer = await asked.response(path, body)
        assert not answer["allowed"]
        assert (await asked.response(path, review(pod() if path == "/inject" else SERVICE_ENTRY)))["allowed"]


@pytest.mark.parametrize("place", ["env", "resources", "lifecycle"])
async def test_cve_2022_24726_what_is_nested_as_deeply_as_it_can_be_decoded_is_answered(place: str) -> None:
    container = {"name": "istio-proxy", "image": "auto", place: json.loads('{"a":' * 900 + "1" + "}" * 900)}
    async with serving(make_injector()) as asked:
        answer = await asked.response("/inject", review({**pod(), "spec": {"containers": [container]}}))
        assert isinstance(answer["allowed"], bool)
        assert (await asked.response("/inject", review(pod())))["allowed"]


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


async def test_right_configuration_is_allowed_in_every_version_with_its_warnings() -> None:
    async with serving(None) as asked:
        assert await asked.response("/validate", review(SERVICE_ENTRY)) == {"uid": "the-uid", "allowed": True}
        assert (
            await asked.response("/validate", review({**SERVICE_ENTRY, "apiVersion": "networking.istio.io/v1beta9"}))
        )["allowed"]
        what = {"group": "networking.istio.io", "version": "v1", "resource": "serviceentries"}
        await asked.response("/validate", review(SERVICE_ENTRY, resource=what))
        assert asked.metric(
            'galley_validation_passed{group="networking.istio.io",resource="serviceentries",version="v1"} 1'
        )


@pytest.mark.parametrize(
    ("what", "message"),
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
async def test_wrong_configuration_is_refused_with_the_place(what: dict[str, Any], message: str) -> None:
    async with serving(None) as asked:
        answer = await asked.response("/validate", review(what))
        assert not answer["allowed"]
        assert answer["status"]["message"].startswith(message)


async def test_what_is_neither_created_nor_changed_is_allowed_and_a_dry_run_is_not_counted() -> None:
    async with serving(None) as asked:
        assert (await asked.response("/validate", review(None, operation="DELETE")))["allowed"]
        await asked.response("/validate", review(entry(hosts=[]), dryRun=True))
        assert "invalid_resource" not in asked.metrics.exposition().decode()
        await asked.response("/validate", review(entry(hosts=[])))
        assert 'reason="invalid_resource"' in asked.metrics.exposition().decode()
