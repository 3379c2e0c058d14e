"""What writers write: statuses beside those of others, entries of proxies that register themselves, and what they try again."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from pilot.config.networking.workload_group import WorkloadGroup
from pilot.config.object import Object
from pilot.controllers.reconciler import Reconciler
from pilot.controllers.registered_entry import build_entry, check_identity, claimed_entry, entry_name
from pilot.controllers.status_merge import StatusContext, merge_conditions, merge_status
from pilot.kube.api_errors import Unreachable
from pilot.lib.backoff import Backoff
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.xds.workload_registration import RegistrationError
from testing.mesh.clock import run_virtual
from testing.mesh.objects import make
from testing.mesh.world import rows_of

Plain = dict[str, Any]
MOMENT = StatusContext(7, "now", ["ours.io/c", "ours.io/mesh"])


def condition(kind: str, status: str, at: str = "", **more: Any) -> Plain:
    stamped = {"observedGeneration": 7, "lastTransitionTime": at} if at else {}
    return {"type": kind, "status": status, **stamped, **more}


@pytest.mark.parametrize(
    ("old", "wanted", "merged"),
    [
        ([], [condition("Accepted", "True")], [condition("Accepted", "True", "now")]),
        (
            [condition("Accepted", "True", "then", reason="Old")],
            [condition("Accepted", "True", reason="New")],
            [condition("Accepted", "True", "then", reason="New")],
        ),
        (
            [condition("Accepted", "False", "then")],
            [condition("Accepted", "True")],
            [condition("Accepted", "True", "now")],
        ),
        ([condition("Accepted", "True")], [condition("Accepted", "True")], [condition("Accepted", "True", "now")]),
        (
            [condition("Theirs", "True", "then"), condition("Programmed", "True", "then")],
            [],
            [condition("Theirs", "True", "then")],
        ),
        (
            [condition("Programmed", "True", "then"), condition("Theirs", "x"), condition("Accepted", "True", "then")],
            [condition("ResolvedRefs", "True"), condition("Accepted", "True"), condition("Programmed", "False")],
            [
                condition("Programmed", "False", "now"),
                condition("Theirs", "x"),
                condition("Accepted", "True", "then"),
                condition("ResolvedRefs", "True", "now"),
            ],
        ),
    ],
    ids=["new", "the same", "another status", "without a time", "gone", "in their order"],
)
def test_conditions_beside_those_of_others(old: list[Plain], wanted: list[Plain], merged: list[Plain]) -> None:
    assert merge_conditions(old, wanted, MOMENT) == merged
    assert merge_status({"conditions": old}, {"conditions": wanted}, MOMENT) == {"conditions": merged}
    assert merge_conditions(merged, wanted, MOMENT) == merged, "nothing is written again"


def entry(controller: str, at: str = "", **ref: Any) -> Plain:
    return {"parentRef": ref, "controllerName": controller, "conditions": [condition("Accepted", "True", at)]}


def test_parents_of_all_controllers_stay_where_they_are() -> None:
    old = [
        entry("ours.io/c", "then", name="gone"),
        entry("theirs.io/c", name="a"),
        entry("ours.io/c", "then", name="a"),
        entry("ours.io/mesh", "then", name="a"),
    ]
    wanted = [
        entry("ours.io/mesh", name="b", kind="Service", group=""),
        entry("ours.io/c", name="a", kind="Gateway", group="gateway.networking.k8s.io"),
        entry("ours.io/c", name="a", sectionName="x"),
        entry("ours.io/c", name="a", port=1),
    ]
    assert merge_status({"parents": old, "other": 1}, {"parents": wanted}, MOMENT) == {
        "parents": [
            entry("theirs.io/c", name="a"),
            entry("ours.io/c", "then", name="a", kind="Gateway", group="gateway.networking.k8s.io"),
            entry("ours.io/mesh", "now", name="b", kind="Service", group=""),
            entry("ours.io/c", "now", name="a", sectionName="x"),
            entry("ours.io/c", "now", name="a", port=1),
        ]
    }
    assert merge_status({}, {"parents": wanted[:1]}, MOMENT) == {
        "parents": [entry("ours.io/mesh", "now", name="b", kind="Service", group="")]
    }


def test_only_sixteen_ancestors_have_room() -> None:
    wanted = [{"ancestorRef": {"name": str(n)}, "controllerName": "ours.io/c", "conditions": []} for n in range(17)]
    assert merge_status({}, {"ancestors": wanted}, MOMENT) == {"ancestors": wanted[:16]}
    parents = [{"parentRef": {"name": str(n)}, "controllerName": "ours.io/c", "conditions": []} for n in range(17)]
    assert merge_status({}, {"parents": parents}, MOMENT) == {"parents": parents}


def test_listeners_keep_the_times_of_their_own_conditions() -> None:
    old = [
        {"name": "a", "attachedRoutes": 1, "conditions": [condition("Accepted", "True", "then")]},
        {"name": "gone", "conditions": []},
        {"name": "c"},
    ]
    wanted = [{"name": name, "attachedRoutes": 2, "conditions": [condition("Accepted", "True")]} for name in "bca"]
    merged = [
        {"name": n, "attachedRoutes": 2, "conditions": [condition("Accepted", "True", at)]}
        for n, at in (("b", "now"), ("c", "now"), ("a", "then"))
    ]
    assert merge_status({"listeners": old}, {"listeners": wanted, "addresses": [1]}, MOMENT) == {
        "listeners": merged,
        "addresses": [1],
    }


# -- registration ------------------------------------------------------------------------------------------------------


def proxy(ip: str = "10.0.0.1", identity: str = "", locality: Locality = Locality(), **metadata: Any) -> Proxy:
    labels = {"LABELS": {"version": "v1", "istio-locality": "a.b"}}
    return Proxy(
        type=NodeType.SIDECAR,
        id="vm.shop",
        ips=(ip, "10.0.0.2"),
        dns_domain="shop.svc",
        namespace="shop",
        metadata={**labels, **metadata},
        identity=identity,
        locality=locality,
    )


@pytest.mark.parametrize(
    ("ip", "metadata", "name"),
    [
        ("10.0.0.1", {}, "group-10.0.0.1"),
        ("2001:db8::1", {"NETWORK": "vm-net"}, "group-2001-db8--1-vm-net"),
        ("10.0.0.1", {"NETWORK": "n" * 244}, f"0.0.1-{'n' * 244}"[-253:]),
    ],
)
def test_an_entry_is_named_after_its_group_address_and_network(ip: str, metadata: Plain, name: str) -> None:
    found = entry_name("group", proxy(ip, **metadata))
    assert found.endswith(name)
    assert len(found) <= 253
    assert found[0] not in "-."
    assert claimed_entry(proxy(ip, AUTO_REGISTER_GROUP="group", WORKLOAD_ENTRY="other", **metadata)) == ("shop", found)


def test_who_names_an_entry_claims_it_and_who_names_none_claims_none() -> None:
    assert claimed_entry(proxy(WORKLOAD_ENTRY="own")) == ("shop", "own")
    assert claimed_entry(proxy()) is None


def group(spec: str) -> Object[WorkloadGroup]:
    (row,) = rows_of([make("WorkloadGroup", "group", spec, "shop")]).values()
    return row


def test_an_entry_has_what_its_template_and_its_proxy_say() -> None:
    places = "serviceAccount: web, network: other, locality: r/z"
    template = (
        f"template: {{address: 9.9.9.9, ports: {{http: 8080}}, labels: {{app: web, version: v0}}, weight: 3, {places}}}"
    )
    of = group(f"{{metadata: {{labels: {{tier: one, app: own}}, annotations: {{a: b}}}}, {template}}}")
    labels = {"app": "own", "version": "v1", "tier": "one"}
    made = build_entry(of, proxy(PROXY_CONFIG={"readinessProbe": {"httpGet": {}}}), "uid-1", "networking.istio.io/v1")
    owner = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "WorkloadGroup",
        "name": "group",
        "uid": "uid-1",
        "controller": True,
    }
    annotations = {"a": "b", "istio.io/autoRegistrationGroup": "group", "proxy.istio.io/health-checks-enabled": "true"}
    assert made == {
        "apiVersion": "networking.istio.io/v1",
        "kind": "WorkloadEntry",
        "metadata": {
            "name": "group-10.0.0.1",
            "namespace": "shop",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "address": "10.0.0.1",
            "ports": {"http": 8080},
            "labels": labels,
            "weight": 3,
            "serviceAccount": "web",
            "network": "other",
            "locality": "r/z",
        },
    }
    own = build_entry(of, proxy(NETWORK="vm-net", locality=Locality("reg", "zone", "")), "", "networking.istio.io/v1")
    assert (own["spec"]["network"], own["spec"]["locality"]) == ("vm-net", "reg/zone")
    assert own["metadata"] == {
        "name": "group-10.0.0.1-vm-net",
        "namespace": "shop",
        "labels": labels,
        "annotations": {"a": "b", "istio.io/autoRegistrationGroup": "group"},
    }
    bare = build_entry(group("{template: {}}"), proxy(), "", "v")
    assert bare["spec"] == {"address": "10.0.0.1", "labels": {"version": "v1"}}


WEB = "spiffe://cluster.local/ns/shop/sa/web"


@pytest.mark.parametrize(
    ("identity", "account", "reason"),
    [
        (WEB, "web", None),
        (WEB, "", None),
        (WEB, "db", f"{WEB} may not register a workload as shop/db"),
        (
            WEB.replace("shop", "other"),
            "web",
            "spiffe://cluster.local/ns/other/sa/web may not register a workload as shop/web",
        ),
        (
            WEB.replace("shop", "other"),
            "",
            "spiffe://cluster.local/ns/other/sa/web may not register a workload as shop/*",
        ),
        ("", "web", "registering a workload requires a verified identity"),
    ],
)
def test_who_may_register_a_workload(identity: str, account: str, reason: str | None) -> None:
    if reason is None:
        check_identity(proxy(identity=identity), account)
        return
    with pytest.raises(RegistrationError) as refused:
        check_identity(proxy(identity=identity), account)
    assert (str(refused.value), refused.value.not_found) == (reason, False)


# -- attempts ----------------------------------------------------------------------------------------------------------


class Longest(random.Random):
    def uniform(self, _: float, most: float) -> float:
        return most


def test_what_fails_is_tried_again_later_and_later_and_keeps_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[tuple[float, str]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()

        async def settle(thing: str) -> None:
            tried.append((loop.time(), thing))
            if thing == "bad" and loop.time() != 7.0:
                raise Unreachable("no answer")

        upkeep = Reconciler[str]("thing", settle, Backoff(1.0, 5.0), Longest())
        task = asyncio.create_task(upkeep.run())
        upkeep.enqueue([])
        upkeep.enqueue(["bad", "good", "bad"])
        await asyncio.sleep(6.5)
        upkeep.enqueue(["good"])
        await asyncio.sleep(2.0)
        upkeep.enqueue(["bad"])
        await asyncio.sleep(1.2)
        task.cancel()

    run_virtual(run())
    bad = [at for at, thing in tried if thing == "bad"]
    assert bad == [0.0, 1.0, 3.0, 7.0, 8.5, 9.5]
    assert [at for at, thing in tried if thing == "good"] == [0.0, 6.5]
    assert [r.getMessage() for r in caplog.records] == ["thing bad: no answer"] * 5


def test_a_mistake_of_ours_at_one_thing_keeps_no_other_from_being_settled(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[tuple[float, str]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()

        async def settle(thing: str) -> None:
            tried.append((loop.time(), thing))
            if thing == "bad" and loop.time() < 2.0:
                raise KeyError(thing)

        upkeep = Reconciler[str]("thing", settle, Backoff(1.0, 5.0), Longest())
        task = asyncio.create_task(upkeep.run())
        upkeep.enqueue(["bad", "good"])
        await asyncio.sleep(10)
        assert not task.done()
        task.cancel()

    run_virtual(run())
    assert tried == [(0.0, "bad"), (0.0, "good"), (1.0, "bad"), (3.0, "bad")]
    told = [(r.levelname, r.getMessage(), r.exc_info is not None) for r in caplog.records]
    assert told == [("ERROR", "cannot reconcile thing bad", True)] * 2
