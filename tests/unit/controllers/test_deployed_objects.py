"""Whole objects that writers keep at an API server, request by request."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from pilot.config.object import ObjectKey
from pilot.controllers.cluster_trust_bundle import NAME, PATH, TrustBundleController
from pilot.controllers.deployed_objects import DeployedKey, DeployedObjects, fingerprint
from pilot.controllers.gateway_class_controller import GatewayClassController
from pilot.controllers.reconciler import ControllerGroup
from pilot.kube.api_errors import Conflict, NotFound
from pilot.kube.informer import WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange
from pilot.lib.backoff import Backoff
from testing.mesh.clock import run_virtual
from testing.mesh.objects import make
from testing.mesh.world import World, rows_of
from webhook.gateway.render import MANAGED

Plain = dict[str, Any]


class Scripted:
    """A client whose answers a test gives by method, errors among them; the last one again and again. `asked` has the requests."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers, self.asked = answers, list[tuple[Any, ...]]()

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
    ) -> bytes:
        self.asked.append(
            tuple(part for part in (method, path, query, json.loads(body) if body else None, content_type) if part)
        )
        answers = self._answers[method]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()


def deployed(client: Scripted, changed: Any = print) -> DeployedObjects:
    return DeployedObjects(client, "me", changed, WatchOptions(), random.Random(1))  # type: ignore[arg-type]


def service(version: str = "", labels: Plain | None = None, **spec: Any) -> Plain:
    metadata = {"namespace": "a", "name": "edge", **({"resourceVersion": version} if version else {})}
    return {
        "kind": "Service",
        "metadata": {**metadata, "labels": {MANAGED: "x"} if labels is None else labels},
        "spec": spec,
    }


GONE = NotFound(404, "NotFound", "")
EDGE = DeployedKey("Service", "a", "edge")
APPLY = ({"fieldManager": "me", "force": "true"},)
TYPE = ("application/apply-patch+yaml",)


async def test_an_object_is_made_and_written_again_only_where_it_is_another() -> None:
    wanted, there = service(type="ClusterIP"), service("7", type="ClusterIP", clusterIP="1.1.1.1")
    client = Scripted(
        GET=[GONE, {**there, "status": {"x": 1}}, service("8", type="Other"), there], PATCH=[there], DELETE=[{}, GONE]
    )
    them = deployed(client)
    assert await them.apply(wanted) is True
    assert await them.apply(wanted) is True
    get = ("GET", EDGE.path)
    assert client.asked == [get, ("PATCH", EDGE.path, *APPLY, wanted, *TYPE), get], "its status is nobody's wish"
    assert await them.apply(wanted) is True
    corrected = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": "8"}}
    assert client.asked[3:] == [get, ("PATCH", EDGE.path, *APPLY, corrected, *TYPE)]
    await them.delete(EDGE)
    await them.delete(EDGE)
    assert await them.apply(wanted) is True
    assert [one[0] for one in client.asked[5:]] == ["DELETE", "DELETE", "GET", "PATCH"], (
        "what was deleted is not known any more"
    )


@pytest.mark.parametrize("labels", [{}, {"app": "theirs"}])
async def test_an_object_of_somebody_else_stays(labels: Plain) -> None:
    client = Scripted(GET=[service("7", labels)])
    assert await deployed(client).apply(service()) is False
    assert len(client.asked) == 1


@pytest.mark.parametrize(("kind", "kept"), [("Deployment", True), ("Service", False)])
async def test_a_deployment_keeps_the_selector_that_it_has(kind: str, kept: bool) -> None:
    old = {"matchLabels": {"istio.io/gateway-name": "edge"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {}}
    wanted = {**service(selector={"matchLabels": {"x": "y"}}, template=template), "kind": kind}
    client = Scripted(GET=[{**service("7", selector=old), "kind": kind}], PATCH=[service("8")])
    assert await deployed(client).apply(wanted) is True
    spec = client.asked[1][3]["spec"]
    labelled = {"metadata": {"labels": {"a": "b", "istio.io/gateway-name": "edge"}}, "spec": {}}
    assert spec == ({"selector": old, "template": labelled} if kept else wanted["spec"])


async def test_whose_objects_change_is_told_unless_it_was_us() -> None:
    told: list[ObjectKey] = []
    labelled = {MANAGED: "x", "gateway.networking.k8s.io/gateway-name": "gw"}
    client = Scripted(GET=[GONE], PATCH=[service("7", labelled, type="A")])
    them = deployed(client, told.append)
    (informer,) = [one for one in them.informers() if one.collection.path.endswith("/services")]

    async def see(plain: Plain | None) -> None:
        await informer._receive(
            [ObjectChange(NamespacedName("a", "edge"), None if plain is None else json.dumps(plain).encode())]
        )

    await them.apply(service(labels=labelled, type="A"))
    await see(service("7", labelled, type="A"))
    assert (told, them.of_gateway(ObjectKey("a", "gw")), them.of_gateway(ObjectKey("a", "other"))) == ([], [EDGE], [])
    await see(service("8", labelled, type="B"))
    await see(None)
    await see(None)
    assert (told, them.of_gateway(ObjectKey("a", "gw"))) == ([ObjectKey("a", "gw")] * 2, [])


def test_objects_are_compared_by_what_somebody_wants() -> None:
    assert fingerprint(service("1", type="A")) == fingerprint({**service("2", type="A"), "status": {"x": 1}})
    assert fingerprint(service("1", type="A")) != fingerprint(service("1", type="B"))
    assert fingerprint(service("1", {"a": "b"})) != fingerprint(service("1", {"a": "c"}))


# -- one object each ---------------------------------------------------------------------------------------------------


def run_for_a_moment(writer: Any) -> None:
    async def run() -> None:
        task = asyncio.create_task(writer.run())
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(run())


CLASS = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "GatewayClass",
    "metadata": {"name": "istio"},
    "spec": {"controllerName": "istio.io/gateway-controller", "description": "The default Istio GatewayClass"},
}


@pytest.mark.parametrize("answer", [{}, Conflict(409, "AlreadyExists", "")])
def test_the_class_that_nobody_wrote_is_made_once(answer: Any) -> None:
    world, client = World(), Scripted(POST=[answer])
    paths = {"istio": "/apis/gateway.networking.k8s.io/v1/gatewayclasses/istio"}
    classes = GatewayClassController(client, world.mesh, lambda name: paths.get(name, ""), Backoff(), random.Random(1))  # type: ignore[arg-type]
    run_for_a_moment(classes)
    assert client.asked == [("POST", "/apis/gateway.networking.k8s.io/v1/gatewayclasses", CLASS)]
    world.set(
        rows_of(
            [
                make(
                    "GatewayClass",
                    "istio",
                    "{controllerName: theirs.io/c}",
                    "",
                    apiVersion="gateway.networking.k8s.io/v1",
                )
            ]
        )
    )
    run_for_a_moment(classes)
    assert len(client.asked) == 1, "one that is there is left alone"


async def test_the_trust_bundle_is_made_and_changed() -> None:
    client, roots = Scripted(POST=[{}], PUT=[{}, Conflict(409, "x", "")]), ""
    bundle = TrustBundleController(client, lambda: roots, WatchOptions(), random.Random(1))  # type: ignore[arg-type]
    await bundle._reconcile(NAME)
    assert client.asked == [], "there are no roots yet"
    roots = "one"
    await bundle._reconcile(NAME)
    spec = {"signerName": "istio.io/istiod-ca", "trustBundle": "one"}
    made = {
        "apiVersion": "certificates.k8s.io/v1beta1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": NAME},
        "spec": spec,
    }
    assert client.asked == [("POST", PATH, made)]
    kept = {**made, "metadata": {"name": NAME, "resourceVersion": "7"}}
    await bundle._receive([ObjectChange(NamespacedName("", NAME), json.dumps(kept).encode())])
    await bundle._reconcile(NAME)
    assert len(client.asked) == 1
    roots = "two"
    await bundle._reconcile(NAME)
    await bundle._reconcile(NAME)
    assert client.asked[1:] == [("PUT", f"{PATH}/{NAME}", {**kept, "spec": {**spec, "trustBundle": "two"}})] * 2
    await bundle._receive([ObjectChange(NamespacedName("", NAME), None)])
    await bundle._reconcile(NAME)
    assert client.asked[3:] == [("POST", PATH, {**made, "spec": {**spec, "trustBundle": "two"}})]


def test_writers_that_run_as_one_are_all_told() -> None:
    class Writer:
        def __init__(self) -> None:
            self.told: list[str] = []

        def resync(self) -> None:
            self.told.append("changed")

        async def run(self) -> None:
            self.told.append("run")
            await asyncio.sleep(1000)

    writers = [Writer(), Writer()]
    both = ControllerGroup(*writers)
    both.resync()
    run_for_a_moment(both)
    assert [one.told for one in writers] == [["changed", "run"]] * 2
