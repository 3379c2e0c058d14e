"""Objects and warnings of uninstallations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilot.controllers.root_certificates import LABELS
from pilot.install.diagnosis import POD
from pilot.install.injectors import is_injector
from pilot.install.installation_labels import COMPONENT, OWNER, REVISION, TAG, OperatorOwner
from pilot.install.prune import DEFINITION, NAMESPACED_KINDS
from pilot.install.uninstallation import (
    delete_objects,
    installed_revisions,
    is_shared,
    proxy_warnings,
    uninstallation_of_everything,
    uninstallation_of_owner,
    uninstallation_of_revision,
)
from pilot.kube.object_client import resource_key
from tests.unit.install.labelled_cluster import (
    CONFIG_MAP,
    DEPLOYMENT,
    ROLE,
    LabelledCluster,
    Plain,
    injector,
    make_object,
)


def pod(name: str, revision: str = "default", injected: bool = True, **labels: str) -> Plain:
    plain = make_object(POD, name, "shop", **labels)
    plain["metadata"]["annotations"] = {REVISION: revision, **({"sidecar.istio.io/status": "{}"} if injected else {})}
    return plain


OBJECTS = (
    make_object(CONFIG_MAP, "istio", "istio-system", component="Pilot", revision="default", owner="mesh"),
    make_object(ROLE, "shared", component="Base", revision="default", owner="mesh"),
    make_object(DEPLOYMENT, "ingress", "edge", component="IngressGateways", revision="default", owner="mesh"),
    make_object(DEPLOYMENT, "other", "edge", component="Pilot", revision="r2"),
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
    make_object(DEFINITION, "gateways", component="Base", revision="default"),
    pod("web-0"),
    pod("web-1", "r2"),
    pod("web-2", injected=False),
    pod("ingress-0", component="IngressGateways"),
)
DEFAULT_OBJECTS = ["istio-sidecar-injector", "istio-revision-tag-prod", "ingress", "istio"]
WARNINGS = (
    "tags that point to this revision will be deleted: prod",
    "proxies still connected to revision default: 1 (shop/web-0)",
    "gateways will be deleted: Deployment edge/ingress",
)


def names(plains: Sequence[Plain]) -> list[str]:
    return [plain["metadata"]["name"] for plain in plains]


async def test_uninstallation_of_a_revision() -> None:
    uninstallation = await uninstallation_of_revision(LabelledCluster(*OBJECTS), "default")  # type: ignore[arg-type]
    assert (names(uninstallation.objects), uninstallation.warnings) == (DEFAULT_OBJECTS, WARNINGS)
    assert uninstallation.keys == [resource_key(plain) for plain in uninstallation.objects]


async def test_uninstallation_of_an_operator() -> None:
    cluster = LabelledCluster(*OBJECTS)
    uninstallation = await uninstallation_of_owner(cluster, OperatorOwner("mesh", "", "default"))  # type: ignore[arg-type]
    assert (names(uninstallation.objects), uninstallation.warnings) == (
        ["istio-sidecar-injector", "ingress", "istio", "istio-revision-tag-prod"],
        WARNINGS,
    )
    reduced = LabelledCluster(
        *(plain for plain in OBJECTS if not is_injector(plain) and plain["metadata"]["name"] != "istio")
    )
    uninstallation = await uninstallation_of_owner(reduced, OperatorOwner("mesh", "", "default"), ["edge"])  # type: ignore[arg-type]
    assert (names(uninstallation.objects), uninstallation.warnings) == (
        ["ingress"],
        ("gateways will be deleted: Deployment edge/ingress",),
    )
    assert {namespace for kind, _, namespace in reduced.queries if kind in {k.name for k in NAMESPACED_KINDS}} == {
        "edge"
    }


async def test_uninstallation_of_everything() -> None:
    uninstallation = await uninstallation_of_everything(LabelledCluster(*OBJECTS))  # type: ignore[arg-type]
    assert names(uninstallation.objects) == [
        "istio-sidecar-injector",
        "istio-revision-tag-prod",
        "shared",
        "ingress",
        "other",
        "istio",
        "gateways",
    ]
    assert uninstallation.warnings == (
        "all revisions will be uninstalled",
        "1 CustomResourceDefinitions will be deleted, with all configuration of these kinds",
        "gateways will be deleted: Deployment edge/ingress",
    )
    assert (await uninstallation_of_everything(LabelledCluster())).warnings == ("all revisions will be uninstalled",)  # type: ignore[arg-type]


async def test_roots_in_all_namespaces_are_uninstalled_last() -> None:
    roots = make_object(CONFIG_MAP, "istio-ca-root-cert", "shop")
    roots["metadata"]["labels"] = dict(LABELS)
    own = make_object(CONFIG_MAP, "settings", "shop")
    uninstallation = await uninstallation_of_everything(LabelledCluster(roots, own, *OBJECTS))  # type: ignore[arg-type]
    assert names(uninstallation.objects)[-2:] == ["gateways", "istio-ca-root-cert"]
    assert "settings" not in names(uninstallation.objects)


async def test_already_deleted_objects_are_not_counted() -> None:
    cluster = LabelledCluster(*OBJECTS)
    uninstallation = await uninstallation_of_revision(cluster, "r2")  # type: ignore[arg-type]
    assert [str(key) for key in await delete_objects(cluster, uninstallation)] == ["Deployment edge/other"]  # type: ignore[arg-type]
    assert await delete_objects(cluster, uninstallation) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " and 1 more")])
async def test_proxy_warning_names_five_proxies(count: int, more: str) -> None:
    cluster = LabelledCluster(*(pod(f"w{n}") for n in range(count)))
    warning = (
        f"proxies still connected to revision default: {count} (shop/w0, shop/w1, shop/w2, shop/w3, shop/w4{more})"
    )
    assert await proxy_warnings(cluster, "default") == [warning]  # type: ignore[arg-type]
    assert await proxy_warnings(cluster, "r2") == []  # type: ignore[arg-type]


def test_shared_objects_and_installed_revisions() -> None:
    shared, hook = make_object(ROLE, "shared", component="Base"), {**injector("hook")}
    hook["metadata"] = {"name": "hook", "labels": {COMPONENT: "Base"}}
    assert [is_shared(plain) for plain in (shared, hook, OBJECTS[0])] == [True, False, False]
    assert installed_revisions(
        [injector("a", "r2"), injector("b"), injector("c", "r3", "prod"), make_object(ROLE, "r", revision="r4")]
    ) == ["default", "r2"]
