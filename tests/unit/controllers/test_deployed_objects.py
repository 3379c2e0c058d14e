"""Objects that controllers apply at an API server, request by request."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from pilot.config.object import ObjectKey
from pilot.controllers.deployed_objects import DeployedKey, DeployedObjects, fingerprint
from pilot.kube.api_errors import NotFound
from pilot.kube.informer import WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange
from webhook.gateway.render import MANAGED

Plain = dict[str, Any]


class ScriptedClient:
    """A client with scripted responses by method.

    The last one repeats, and exceptions are raised. `requests` records the calls.
    """

    def __init__(self, **responses: list[Any]) -> None:
        self._responses, self.requests = responses, list[tuple[Any, ...]]()

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
    ) -> bytes:
        self.requests.append(
            tuple(part for part in (method, path, query, json.loads(body) if body else None, content_type) if part)
        )
        responses = self._responses[method]
        response = responses.pop(0) if len(responses) > 1 else responses[0]
        if isinstance(response, Exception):
            raise response
        return json.dumps(response).encode()


def make_objects(client: ScriptedClient, on_change: Any = print) -> DeployedObjects:
    return DeployedObjects(client, "me", on_change, WatchOptions(), random.Random(1))  # type: ignore[arg-type]


def service(version: str = "", labels: Plain | None = None, **spec: Any) -> Plain:
    metadata = {"namespace": "a", "name": "edge", **({"resourceVersion": version} if version else {})}
    return {
        "kind": "Service",
        "metadata": {**metadata, "labels": {MANAGED: "x"} if labels is None else labels},
        "spec": spec,
    }


NOT_FOUND = NotFound(404, "NotFound", "")
EDGE = DeployedKey("Service", "a", "edge")
APPLY = ({"fieldManager": "me", "force": "true"},)
TYPE = ("application/apply-patch+yaml",)


async def test_object_is_applied_only_if_it_differs() -> None:
    desired, stored = service(type="ClusterIP"), service("7", type="ClusterIP", clusterIP="1.1.1.1")
    client = ScriptedClient(
        GET=[NOT_FOUND, {**stored, "status": {"x": 1}}, service("8", type="Other"), stored],
        PATCH=[stored],
        DELETE=[{}, NOT_FOUND],
    )
    objects = make_objects(client)
    assert await objects.apply(desired) is True
    assert await objects.apply(desired) is True
    get = ("GET", EDGE.path)
    assert client.requests == [get, ("PATCH", EDGE.path, *APPLY, desired, *TYPE), get], (
        "a status difference causes no write"
    )
    assert await objects.apply(desired) is True
    corrected = {**desired, "metadata": {**desired["metadata"], "resourceVersion": "8"}}
    assert client.requests[3:] == [get, ("PATCH", EDGE.path, *APPLY, corrected, *TYPE)]
    await objects.delete(EDGE)
    await objects.delete(EDGE)
    assert await objects.apply(desired) is True
    assert [request[0] for request in client.requests[5:]] == ["DELETE", "DELETE", "GET", "PATCH"], (
        "a deleted object is applied anew"
    )


@pytest.mark.parametrize("labels", [{}, {"app": "theirs"}])
async def test_unmanaged_object_is_not_touched(labels: Plain) -> None:
    client = ScriptedClient(GET=[service("7", labels)])
    assert await make_objects(client).apply(service()) is False
    assert len(client.requests) == 1


@pytest.mark.parametrize(("kind", "keeps_selector"), [("Deployment", True), ("Service", False)])
async def test_deployment_keeps_its_selector(kind: str, keeps_selector: bool) -> None:
    selector = {"matchLabels": {"istio.io/gateway-name": "edge"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {}}
    desired = {**service(selector={"matchLabels": {"x": "y"}}, template=template), "kind": kind}
    client = ScriptedClient(GET=[{**service("7", selector=selector), "kind": kind}], PATCH=[service("8")])
    assert await make_objects(client).apply(desired) is True
    spec = client.requests[1][3]["spec"]
    labelled_template = {"metadata": {"labels": {"a": "b", "istio.io/gateway-name": "edge"}}, "spec": {}}
    assert spec == ({"selector": selector, "template": labelled_template} if keeps_selector else desired["spec"])


async def test_external_changes_notify_the_gateway() -> None:
    changes: list[ObjectKey] = []
    labels = {MANAGED: "x", "gateway.networking.k8s.io/gateway-name": "gw"}
    client = ScriptedClient(GET=[NOT_FOUND], PATCH=[service("7", labels, type="A")])
    objects = make_objects(client, changes.append)
    (informer,) = [candidate for candidate in objects.informers() if candidate.collection.path.endswith("/services")]

    async def see(stored: Plain | None) -> None:
        await informer._receive(
            [ObjectChange(NamespacedName("a", "edge"), None if stored is None else json.dumps(stored).encode())]
        )

    await objects.apply(service(labels=labels, type="A"))
    await see(service("7", labels, type="A"))
    assert (changes, objects.of_gateway(ObjectKey("a", "gw")), objects.of_gateway(ObjectKey("a", "other"))) == (
        [],
        [EDGE],
        [],
    )
    await see(service("8", labels, type="B"))
    await see(None)
    await see(None)
    assert (changes, objects.of_gateway(ObjectKey("a", "gw"))) == ([ObjectKey("a", "gw")] * 2, [])


def test_fingerprint_ignores_status_and_version() -> None:
    assert fingerprint(service("1", type="A")) == fingerprint({**service("2", type="A"), "status": {"x": 1}})
    assert fingerprint(service("1", type="A")) != fingerprint(service("1", type="B"))
    assert fingerprint(service("1", {"a": "b"})) != fingerprint(service("1", {"a": "c"}))
