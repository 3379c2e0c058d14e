"""What an installation says of objects: what they lack, who owns them, what would go with them, and what is known about pods that do not start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from deploy.operator.errors import SettingsError
from pilot.install.diagnosis import EVENT, POD, diagnose
from pilot.install.injectors import (
    MUTATING,
    NEVER,
    deactivated,
    injection_conflicts,
    is_injector,
    revision_of,
    selects,
    tag_of,
)
from pilot.install.installation_labels import (
    COMPONENT,
    OWNER,
    OWNER_NAMESPACE,
    REVISION,
    TAG,
    OperatorOwner,
    owner_of,
    with_ownership_labels,
)
from pilot.install.object_readiness import unready_reason
from pilot.install.prune import CLUSTER_KINDS, DEFINITION, NAMESPACED_KINDS, prune
from pilot.install.uninstallation import (
    delete_objects,
    installed_revisions,
    is_shared,
    proxy_warnings,
    uninstallation_of_everything,
    uninstallation_of_owner,
    uninstallation_of_revision,
)
from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ResourceKey, VersionedKind, resource_key

Plain = dict[str, Any]


class Cluster:
    """Objects by their labels, as a client lists and deletes them; `asked` are the selectors and namespaces of lists."""

    def __init__(self, *there: Plain) -> None:
        self.there = list(there)
        self.asked: list[tuple[str, str, str]] = []
        self.gone: list[ResourceKey] = []

    async def list(
        self, kind: VersionedKind, selector: str = "", namespace: str = "", fields: str = ""
    ) -> Sequence[Plain]:
        self.asked.append((kind.name, selector, namespace))
        terms = [term.partition("=") for term in selector.split(",") if term and not term.startswith("!")]

        def is_meant(plain: Plain) -> bool:
            metadata = plain["metadata"]
            labels = metadata.get("labels") or {}
            selected = all(labels.get(key) == value if equals else key in labels for key, equals, value in terms)
            about = fields.removeprefix("involvedObject.name=")
            of = not fields or plain["involvedObject"]["name"] == about
            return selected and of and namespace in ("", metadata.get("namespace"))

        return [p for p in self.there if (p["apiVersion"], p["kind"]) == (kind.api_version, kind.name) and is_meant(p)]

    async def delete(self, key: ResourceKey) -> bool:
        if key in self.gone:
            return False
        self.gone.append(key)
        return True


def made(kind: VersionedKind, name: str, namespace: str = "", **labels: str) -> Plain:
    metadata: Plain = {"name": name, "labels": {KEYS[key]: value for key, value in labels.items()}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {**metadata, **({"namespace": namespace} if namespace else {})},
    }


KEYS = {"component": COMPONENT, "revision": REVISION, "tag": TAG, "owner": OWNER, "owner_namespace": OWNER_NAMESPACE}
DEPLOYMENT = next(kind for kind in NAMESPACED_KINDS if kind.name == "Deployment")
CONFIG_MAP = next(kind for kind in NAMESPACED_KINDS if kind.name == "ConfigMap")
ROLE = next(kind for kind in CLUSTER_KINDS if kind.name == "ClusterRole")


# -- what is missing ---------------------------------------------------------------------------------------------------

WORKLOAD: Plain = {"metadata": {"generation": 2}, "spec": {"replicas": 3}}


@pytest.mark.parametrize(
    ("kind", "plain", "missing"),
    [
        ("CustomResourceDefinition", {}, "not established"),
        (
            "CustomResourceDefinition",
            {"status": {"conditions": [{"type": "Established", "status": "False"}]}},
            "not established",
        ),
        (
            "CustomResourceDefinition",
            {"status": {"conditions": [{"type": "NamesAccepted", "status": "True"}]}},
            "not established",
        ),
        ("CustomResourceDefinition", {"status": {"conditions": [{"type": "Established", "status": "True"}]}}, ""),
        ("Namespace", {"metadata": {}}, ""),
        ("Namespace", {"metadata": {}, "status": {"phase": "Active"}}, ""),
        ("Namespace", {"metadata": {}, "status": {"phase": "Terminating"}}, "being deleted"),
        (
            "Namespace",
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Active"}},
            "being deleted",
        ),
        ("ConfigMap", {"metadata": {"generation": 5}}, ""),
        ("Deployment", WORKLOAD, "not observed by its controller yet"),
        (
            "Deployment",
            {**WORKLOAD, "status": {"observedGeneration": 1, "updatedReplicas": 3, "readyReplicas": 3}},
            "not observed by its controller yet",
        ),
        ("Deployment", {**WORKLOAD, "status": {"observedGeneration": 2, "updatedReplicas": 3, "readyReplicas": 3}}, ""),
        (
            "Deployment",
            {**WORKLOAD, "status": {"observedGeneration": 3, "updatedReplicas": 2, "readyReplicas": 3}},
            "2 of 3 pods ready",
        ),
        ("StatefulSet", {**WORKLOAD, "status": {"observedGeneration": 2, "updatedReplicas": 3}}, "0 of 3 pods ready"),
        ("Deployment", {"metadata": {}}, "0 of 1 pods ready"),
        ("Deployment", {"metadata": {}, "spec": {"replicas": 0}}, ""),
        ("Deployment", {"metadata": {}, "spec": {}, "status": {"updatedReplicas": 1, "readyReplicas": 1}}, ""),
        (
            "DaemonSet",
            {"metadata": {}, "status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 1}},
            "1 of 2 pods ready",
        ),
        (
            "DaemonSet",
            {"metadata": {}, "status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 2}},
            "",
        ),
        ("DaemonSet", {"metadata": {}}, ""),
    ],
)
def test_what_an_object_lacks(kind: str, plain: Plain, missing: str) -> None:
    assert unready_reason({"kind": kind, **plain}) == missing


# -- labels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "owner", "selector"),
    [
        (
            {},
            OperatorOwner("unknown", "", "default"),
            f"{COMPONENT},{OWNER}=unknown,{REVISION}=default,!{OWNER_NAMESPACE}",
        ),
        (
            {"metadata": {"name": "mesh", "namespace": "istio-system"}, "spec": {"values": {"revision": "r2"}}},
            OperatorOwner("mesh", "istio-system", "r2"),
            f"{COMPONENT},{OWNER}=mesh,{OWNER_NAMESPACE}=istio-system,{REVISION}=r2",
        ),
        (
            {"metadata": None, "spec": {"values": None}},
            OperatorOwner("unknown", "", "default"),
            f"{COMPONENT},{OWNER}=unknown,{REVISION}=default,!{OWNER_NAMESPACE}",
        ),
    ],
)
def test_the_owner_of_what_an_operator_installs(operator: Plain, owner: OperatorOwner, selector: str) -> None:
    assert owner_of(operator) == owner
    assert owner.selector() == selector


@pytest.mark.parametrize(
    ("name", "fits"), [("a" * 63, True), ("a" * 64, False), ("a-", False), ("A.b_c-9", True), ("ä", False)]
)
def test_names_of_operators_must_fit_into_a_label(name: str, fits: bool) -> None:
    if fits:
        assert owner_of({"metadata": {"name": name}}).name == name
        return
    with pytest.raises(
        SettingsError,
        match=rf"^metadata.name: {name} is not a valid label value; use at most 63 letters, digits, -, _ and .$",
    ):
        owner_of({"metadata": {"name": name}})


@pytest.mark.parametrize("labels", [None, {"app": "istiod", COMPONENT: "old"}])
def test_an_object_keeps_its_labels_and_gets_those_of_its_owner(labels: dict[str, str] | None) -> None:
    plain = {"kind": "Service", "metadata": {"name": "istiod", "labels": labels}}
    found = with_ownership_labels(plain, OperatorOwner("mesh", "", "r2"), "Pilot")["metadata"]["labels"]
    assert found.pop("operator.istio.io/version")
    own = {COMPONENT: "Pilot", "operator.istio.io/managed": "Reconcile", OWNER: "mesh", REVISION: "r2"}
    assert found == {**({"app": "istiod"} if labels else {}), **own}
    assert plain["metadata"]["labels"] is labels


# -- webhooks of injection ---------------------------------------------------------------------------------------------


def injector(name: str, revision: str = "", tag: str = "", **selectors: Plain) -> Plain:
    plain = made(MUTATING, name, **({"revision": revision} if revision else {}), **({"tag": tag} if tag else {}))
    return {**plain, "webhooks": [{"name": "rev.namespace.sidecar-injector.istio.io", **selectors}]}


ENABLED: Plain = {"matchLabels": {"istio-injection": "enabled"}}


def test_what_injects_and_for_whom() -> None:
    assert [
        is_injector(plain) for plain in (injector("a"), {**injector("a"), "kind": "ValidatingWebhookConfiguration"})
    ] == [True, False]
    assert not is_injector({**injector("a"), "webhooks": [{"name": "x.example"}]})
    assert not is_injector({**injector("a"), "webhooks": None})
    assert [(revision_of(p), tag_of(p)) for p in (injector("a"), injector("b", "r2", "prod"))] == [
        ("default", ""),
        ("r2", "prod"),
    ]
    assert deactivated(injector("a", namespaceSelector=ENABLED))["webhooks"] == [
        {"name": "rev.namespace.sidecar-injector.istio.io", "namespaceSelector": NEVER, "objectSelector": NEVER}
    ]


@pytest.mark.parametrize(
    ("operator", "values", "labels", "selected"),
    [
        ("In", ["a", "b"], {"x": "b"}, True),
        ("In", ["a"], {"x": "b"}, False),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {"x": "b"}, True),
        ("NotIn", ["a"], {"x": "a"}, False),
        ("NotIn", ["a"], {}, True),
        ("Exists", None, {"x": ""}, True),
        ("Exists", None, {}, False),
        ("DoesNotExist", None, {}, True),
        ("DoesNotExist", None, {"x": "a"}, False),
        ("Sometimes", None, {"x": "a"}, False),
    ],
)
def test_selectors(operator: str, values: list[str] | None, labels: dict[str, str], selected: bool) -> None:
    expression = {"key": "x", "operator": operator, **({"values": values} if values is not None else {})}
    assert selects({"matchExpressions": [expression]}, labels) is selected
    assert selects({"matchLabels": {"y": "1"}, "matchExpressions": [expression]}, {**labels, "y": "1"}) is selected
    assert not selects({"matchLabels": {"y": "1"}, "matchExpressions": [expression]}, labels)
    assert selects({}, labels)


@pytest.mark.parametrize(
    ("ours", "theirs", "where"),
    [
        (ENABLED, ENABLED, "pods without injection labels in namespaces labelled istio-injection=enabled"),
        (
            ENABLED,
            {"matchLabels": {REVISION: "r2"}},
            f"pods without injection labels in namespaces labelled istio-injection=enabled, {REVISION}=r2",
        ),
        (ENABLED, {"matchLabels": {"istio-injection": "disabled"}}, ""),
        ({}, {}, "pods without injection labels in namespaces without injection labels"),
        (ENABLED, NEVER, ""),
    ],
)
def test_who_would_inject_the_same_pods(ours: Plain, theirs: Plain, where: str) -> None:
    said = injection_conflicts(
        [injector("one", namespaceSelector=ours), made(ROLE, "r")],
        [made(ROLE, "r"), injector("two", "r2", namespaceSelector=theirs)],
    )
    assert said == ([f"one and two (revision r2) would both inject {where}"] if where else [])


# -- what goes with an installation ------------------------------------------------------------------------------------


def pod(name: str, revision: str = "default", injected: bool = True, **labels: str) -> Plain:
    plain = made(POD, name, "shop", **labels)
    plain["metadata"]["annotations"] = {REVISION: revision, **({"sidecar.istio.io/status": "{}"} if injected else {})}
    return plain


THERE = (
    made(CONFIG_MAP, "istio", "istio-system", component="Pilot", revision="default", owner="mesh"),
    made(ROLE, "shared", component="Base", revision="default", owner="mesh"),
    made(DEPLOYMENT, "ingress", "edge", component="IngressGateways", revision="default", owner="mesh"),
    made(DEPLOYMENT, "other", "edge", component="Pilot", revision="r2"),
    injector("istio-sidecar-injector", "default")
    | {
        "metadata": {
            "name": "istio-sidecar-injector",
            "labels": {COMPONENT: "Pilot", REVISION: "default", OWNER: "mesh"},
        }
    },
    injector("istio-revision-tag-prod")
    | {
        "metadata": {
            "name": "istio-revision-tag-prod",
            "labels": {COMPONENT: "Pilot", REVISION: "default", TAG: "prod"},
        }
    },
    made(DEFINITION, "gateways", component="Base", revision="default"),
    pod("web-0"),
    pod("web-1", "r2"),
    pod("web-2", injected=False),
    pod("ingress-0", component="IngressGateways"),
)
MINE = ["istio-sidecar-injector", "istio-revision-tag-prod", "ingress", "istio"]
WARNED = (
    "tags that point to this revision will be deleted: prod",
    "proxies still connected to revision default: 1 (shop/web-0)",
    "gateways will be deleted: Deployment edge/ingress",
)


def names(plains: Sequence[Plain]) -> list[str]:
    return [plain["metadata"]["name"] for plain in plains]


async def test_what_goes_with_a_revision() -> None:
    leaving = await uninstallation_of_revision(Cluster(*THERE), "default")  # type: ignore[arg-type]
    assert (names(leaving.objects), leaving.warnings) == (MINE, WARNED)
    assert leaving.keys == [resource_key(plain) for plain in leaving.objects]


async def test_what_goes_with_an_operator_is_followed_by_the_tags_of_its_revision() -> None:
    cluster = Cluster(*THERE)
    leaving = await uninstallation_of_owner(cluster, OperatorOwner("mesh", "", "default"))  # type: ignore[arg-type]
    assert (names(leaving.objects), leaving.warnings) == (
        ["istio-sidecar-injector", "ingress", "istio", "istio-revision-tag-prod"],
        WARNED,
    )
    without = Cluster(*(plain for plain in THERE if not is_injector(plain) and plain["metadata"]["name"] != "istio"))
    leaving = await uninstallation_of_owner(without, OperatorOwner("mesh", "", "default"), ["edge"])  # type: ignore[arg-type]
    assert (names(leaving.objects), leaving.warnings) == (
        ["ingress"],
        ("gateways will be deleted: Deployment edge/ingress",),
    )
    assert {namespace for kind, _, namespace in without.asked if kind in {k.name for k in NAMESPACED_KINDS}} == {"edge"}


async def test_everything_goes_with_its_definitions_at_last() -> None:
    leaving = await uninstallation_of_everything(Cluster(*THERE))  # type: ignore[arg-type]
    assert names(leaving.objects) == [
        "istio-sidecar-injector",
        "istio-revision-tag-prod",
        "shared",
        "ingress",
        "other",
        "istio",
        "gateways",
    ]
    assert leaving.warnings == (
        "all revisions will be uninstalled",
        "1 CustomResourceDefinitions will be deleted, with all configuration of these kinds",
        "gateways will be deleted: Deployment edge/ingress",
    )
    assert (await uninstallation_of_everything(Cluster())).warnings == ("all revisions will be uninstalled",)  # type: ignore[arg-type]


async def test_what_is_gone_already_is_not_counted_as_deleted() -> None:
    cluster = Cluster(*THERE)
    leaving = await uninstallation_of_revision(cluster, "r2")  # type: ignore[arg-type]
    assert [str(key) for key in await delete_objects(cluster, leaving)] == ["Deployment edge/other"]  # type: ignore[arg-type]
    assert await delete_objects(cluster, leaving) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " and 1 more")])
async def test_five_proxies_are_named(count: int, more: str) -> None:
    cluster = Cluster(*(pod(f"w{n}") for n in range(count)))
    said = f"proxies still connected to revision default: {count} (shop/w0, shop/w1, shop/w2, shop/w3, shop/w4{more})"
    assert await proxy_warnings(cluster, "default") == [said]  # type: ignore[arg-type]
    assert await proxy_warnings(cluster, "r2") == []  # type: ignore[arg-type]


def test_what_is_shared_and_which_revisions_there_are() -> None:
    shared, hook = made(ROLE, "shared", component="Base"), {**injector("hook")}
    hook["metadata"] = {"name": "hook", "labels": {COMPONENT: "Base"}}
    assert [is_shared(plain) for plain in (shared, hook, THERE[0])] == [True, False, False]
    assert installed_revisions(
        [injector("a", "r2"), injector("b"), injector("c", "r3", "prod"), made(ROLE, "r", revision="r4")]
    ) == ["default", "r2"]


async def test_what_is_kept_or_is_made_by_a_controller_is_not_pruned() -> None:
    owned = made(DEPLOYMENT, "owned", "edge", component="Pilot")
    owned["metadata"]["ownerReferences"] = [{"kind": "Gateway"}]
    stays = made(CONFIG_MAP, "stays", "edge", component="Pilot")
    stays["metadata"]["labels"]["install.operator.istio.io/owning-resource-not-pruned"] = "true"
    kept, gone = (
        made(CONFIG_MAP, "kept", "edge", component="Pilot"),
        made(CONFIG_MAP, "gone", "edge", component="Pilot"),
    )
    cluster = Cluster(owned, stays, kept, gone)
    assert await prune(cluster, COMPONENT, {resource_key(kept)}) == [resource_key(gone)]  # type: ignore[arg-type]
    assert cluster.gone == [resource_key(gone)]


# -- why something does not come up ------------------------------------------------------------------------------------


def event(name: str, reason: str, message: str, kind: str = "Warning") -> Plain:
    plain = made(EVENT, f"{name}.{reason}", "edge")
    return {**plain, "involvedObject": {"name": name}, "type": kind, "reason": reason, "message": message}


LATE: Plain = {
    "kind": "Deployment",
    "metadata": {"name": "ingress", "namespace": "edge"},
    "spec": {"selector": {"matchLabels": {"b": "2", "a": "1"}}},
}


async def test_pods_are_looked_for_by_the_labels_of_their_workload() -> None:
    cluster = Cluster()
    assert await diagnose(cluster, LATE) == [
        "no pods have been created; for details, run kubectl describe -n edge deployment ingress"
    ]  # type: ignore[arg-type]
    assert cluster.asked[0] == ("Pod", "a=1,b=2", "edge")


async def test_a_workload_without_pods_says_which_condition_it_fails() -> None:
    conditions = [
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"},
        {"type": "Progressing", "status": "True", "reason": "New"},
        {"type": "Available", "status": "False"},
    ]
    assert await diagnose(Cluster(), {**LATE, "status": {"conditions": conditions}}) == [  # type: ignore[arg-type]
        "FailedCreate: quota",
        "Available: ",
        "no pods have been created; for details, run kubectl describe -n edge deployment ingress",
    ]


async def test_of_pods_that_are_not_ready_three_are_told_of_with_their_last_three_warnings() -> None:
    def late(name: str, **status: Any) -> Plain:
        plain = made(POD, name, "edge")
        return {**plain, "metadata": {**plain["metadata"], "labels": {"a": "1", "b": "2"}}, "status": status}

    events = [{**event("i-0", f"r{n}", f"m{n}"), "lastTimestamp": f"2026-01-01T00:00:0{n}Z"} for n in (4, 1, 3, 2)]
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, "name": "istio-proxy"}
    failed = {"state": {"terminated": {"reason": "Error", "exitCode": 1}}, "name": "istio-init"}
    fine = [
        {"name": "a", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
        {"name": "b", "state": {"running": {}}},
        {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}},
    ]
    pods = [
        late("ready", conditions=[{"type": "Ready", "status": "True"}]),
        late(
            "i-0",
            conditions=[
                {"type": "Ready", "status": "False"},
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
            ],
        ),
        late("i-1", initContainerStatuses=[failed], containerStatuses=[waiting]),
        late("i-2", phase="Running", containerStatuses=fine),
        late("i-3"),
    ]
    advice = "check that the image exists and that nodes can pull it: hub, tag and values.global.imagePullSecrets"
    assert await diagnose(Cluster(*pods, *events, event("i-0", "Pulled", "fine", "Normal")), LATE) == [  # type: ignore[arg-type]
        "pod edge/i-0: Unschedulable",
        "  no node fits the pod: check its resource requests, nodeSelector, affinity and tolerations",
        "  r2: m2",
        "  r3: m3",
        "  r4: m4",
        "pod edge/i-1, container istio-init: Error",
        "pod edge/i-1, container istio-proxy: ErrImagePull: no such image",
        f"  {advice}",
        "pod edge/i-2: Running: not ready",
    ]


async def test_where_nothing_can_be_read_nothing_is_said() -> None:
    class Closed(Cluster):
        async def list(
            self, kind: VersionedKind, selector: str = "", namespace: str = "", fields: str = ""
        ) -> Sequence[Plain]:
            raise KubeError("forbidden")

    assert await diagnose(Closed(), LATE) == []  # type: ignore[arg-type]
