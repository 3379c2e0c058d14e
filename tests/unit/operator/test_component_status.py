"""The parts of the operator by themselves: what an IstioOperator is, what its status says, and which changes of objects matter."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest

from pilot.install.install_plan import InstallPlan, Step
from pilot.install.installation_labels import OperatorOwner
from pilot.install.installer import InstallOutcome, StepFailure
from pilot.kube.api_errors import Conflict
from pilot.kube.object_client import ResourceKey, VersionedKind
from pilot.lib.build_info import build_info
from pilot.lib.duration import parse_duration
from pilot.operator.component_status import (
    ComponentStatus,
    build_status,
    build_status_patch,
    outcome_status,
    readiness_status,
    uniform_status,
    worst_status,
)
from pilot.operator.deletion import add_finalizer, remove_finalizer
from pilot.operator.drift import fingerprint
from pilot.operator.istio_operator_resource import (
    FINALIZER,
    KIND,
    IstioOperatorResource,
    decode_istio_operator,
    istio_operator_of,
)
from pilot.operator.operator_metrics import OperatorMetrics
from pilot.operator.operator_settings import OperatorSettings
from testing.apiserver.patches import merge_patch

Plain = dict[str, Any]
VERSION = build_info().version
OBJECT: Plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"}}


# -- an IstioOperator --------------------------------------------------------------------------------------------------


def istio_operator(spec: Any = None, **metadata: Any) -> Plain:
    named = {"name": "mesh", "namespace": "istio-system", **metadata}
    return {
        "apiVersion": "install.istio.io/v1alpha1",
        "kind": "IstioOperator",
        "metadata": named,
        **({} if spec is None else {"spec": spec}),
    }


def test_an_istio_operator_is_read_as_the_api_server_has_it() -> None:
    now = {"uid": "u", "generation": 3, "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}
    plain = istio_operator({"revision": "r1", "profile": "minimal"}, **now)
    read = decode_istio_operator(json.dumps(plain).encode())
    assert read == IstioOperatorResource("istio-system", "mesh", "u", 3, True, plain)
    assert read.key == ResourceKey(VersionedKind("install.istio.io/v1alpha1", "IstioOperator"), "istio-system", "mesh")
    assert (read.spec_version, read.revision, read.finalizers) == (("u", 3), "r1", ["f"])
    assert read.settings() == istio_operator({"revision": "r1", "profile": "minimal"})


def test_what_an_istio_operator_does_not_say() -> None:
    plain = {"metadata": {"name": "mesh", "generation": None, "annotations": None}, "spec": {"revision": None}}
    read = istio_operator_of(plain)
    assert read == IstioOperatorResource("", "mesh", "", 0, False, plain)
    assert (read.spec_version, read.revision, read.finalizers, read.is_managed_by(""), read.is_managed_by("r1")) == (
        ("", 0),
        "",
        [],
        True,
        False,
    )
    assert istio_operator_of({"metadata": {"name": "mesh"}}).settings()["spec"] == {}
    assert istio_operator_of({"metadata": {"name": "mesh"}, "spec": "text"}).settings()["spec"] == "text"
    assert istio_operator_of({"metadata": {"name": "mesh"}, "spec": False}).settings()["spec"] is False


@pytest.mark.parametrize(
    ("revision", "annotations", "by"),
    [
        ("", {}, {"": True, "r1": False}),
        ("r1", {}, {"": True, "r1": True, "r2": False}),
        ("r1", {"install.istio.io/ignoreReconcile": "true"}, {"": False, "r1": False, "r2": False}),
        ("r1", {"install.istio.io/ignoreReconcile": "false"}, {"": True, "r1": True, "r2": False}),
    ],
)
def test_an_operator_looks_after_those_of_its_revision_that_are_not_to_be_ignored(
    revision: str, annotations: Plain, by: dict[str, bool]
) -> None:
    read = istio_operator_of(istio_operator({"revision": revision}, annotations=annotations))
    assert {own: read.is_managed_by(own) for own in by} == by


# -- status ------------------------------------------------------------------------------------------------------------

PLAN = InstallPlan(
    {},
    OperatorOwner("mesh", "istio-system", ""),
    "istio-system",
    "",
    (
        Step("Base", "base", "istio-system", (OBJECT,)),
        Step("Pilot", "istiod", "istio-system", (OBJECT,)),
        Step("IngressGateways", "one", "istio-system", (OBJECT,)),
        Step("IngressGateways", "two", "shop", (OBJECT,)),
        Step("Cni", "cni", "istio-system", ()),
    ),
)
HEALTHY = ComponentStatus("HEALTHY")


def test_components_without_objects_have_no_status() -> None:
    assert uniform_status(PLAN, HEALTHY) == {"Base": HEALTHY, "Pilot": HEALTHY, "IngressGateways": HEALTHY}


def test_after_an_installation_a_component_of_several_gateways_says_what_is_wrong_with_each() -> None:
    assert outcome_status(PLAN, InstallOutcome((), (), ("a remark",))) == uniform_status(PLAN, HEALTHY)
    one = StepFailure(
        "IngressGateways one", "it did not come up", ("  Deployment istio-system/one: 0 of 1 pods ready", "no image ")
    )
    two = StepFailure("IngressGateways two", "refused")
    said = "it did not come up; Deployment istio-system/one: 0 of 1 pods ready; no image"
    assert outcome_status(PLAN, InstallOutcome((one,), (), ()))["IngressGateways"] == ComponentStatus("ERROR", said)
    both = outcome_status(PLAN, InstallOutcome((one, two), (), ()))
    assert both == {"Base": HEALTHY, "Pilot": HEALTHY, "IngressGateways": ComponentStatus("ERROR", f"{said}; refused")}
    empty = outcome_status(PLAN, InstallOutcome((StepFailure("Cni", "refused"),), (), ()))
    assert empty["Cni"] == ComponentStatus("ERROR", "refused")


def test_what_a_component_lacks_later_has_it_reconciling() -> None:
    late = readiness_status(PLAN, {"Pilot": "Deployment istio-system/istiod: 0 of 1 pods ready", "Cni": "nothing"})
    assert late == {
        "Base": HEALTHY,
        "IngressGateways": HEALTHY,
        "Pilot": ComponentStatus("RECONCILING", "Deployment istio-system/istiod: 0 of 1 pods ready"),
    }


def test_the_status_names_components_in_order_with_the_version_and_their_errors() -> None:
    status = build_status({"Pilot": ComponentStatus("ERROR", "refused"), "Base": HEALTHY}, "a message")
    base, pilot = {"status": "HEALTHY", "version": VERSION}, {"status": "ERROR", "version": VERSION, "error": "refused"}
    assert status == {"status": "ERROR", "message": "a message", "componentStatus": {"Base": base, "Pilot": pilot}}
    assert list(status["componentStatus"]) == ["Base", "Pilot"]
    assert build_status({"Base": HEALTHY}, overall="ACTION_REQUIRED") == {
        "status": "ACTION_REQUIRED",
        "message": "",
        "componentStatus": {"Base": base},
    }


@pytest.mark.parametrize(
    ("found", "whole"),
    [
        ([], "HEALTHY"),
        (["HEALTHY"], "HEALTHY"),
        (["HEALTHY", "RECONCILING"], "RECONCILING"),
        (["RECONCILING", "UPDATING"], "UPDATING"),
        (["UPDATING", "ACTION_REQUIRED"], "ACTION_REQUIRED"),
        (["ACTION_REQUIRED", "ERROR", "HEALTHY"], "ERROR"),
        (["UNHEARD"], "HEALTHY"),
    ],
)
def test_the_worst_status_stands_for_all(found: list[str], whole: str) -> None:
    assert worst_status(found) == whole


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"status": "ERROR", "message": "refused", "componentStatus": None},
        {
            "status": "ERROR",
            "componentStatus": {
                "Cni": {"status": "ERROR"},
                "Pilot": {"status": "ERROR", "error": "no", "odd": 1},
                "Base": None,
            },
        },
    ],
)
def test_the_patch_of_a_status_makes_the_new_one_of_the_old_one(before: Plain) -> None:
    after = build_status({"Pilot": HEALTHY, "Base": ComponentStatus("ERROR", "late")})
    untouched = copy.deepcopy(before)
    patch = build_status_patch(before, after)
    assert before == untouched
    assert merge_patch({"status": before}, patch) == {"status": after}


# -- changes of objects ------------------------------------------------------------------------------------------------

ANNOTATIONS = {"deployment.kubernetes.io/revision": "1", "c": "d"}
SPECIFIED: Plain = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {"replicas": 2},
    "status": {"observedGeneration": 4, "updatedReplicas": 2, "readyReplicas": 2},
    "metadata": {
        "name": "istiod",
        "generation": 4,
        "resourceVersion": "7",
        "labels": {"a": "b"},
        "annotations": ANNOTATIONS,
    },
}


def changed(plain: Plain, path: str, value: Any) -> Plain:
    made = copy.deepcopy(plain)
    *around, last = path.split(".")
    inner = made
    for part in around:
        inner = inner[part]
    inner[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "matters"),
    [
        ("metadata.resourceVersion", "8", False),
        ("metadata.generation", 5, True),
        ("metadata.labels", {"a": "c"}, True),
        ("metadata.labels", None, True),
        ("metadata.annotations", {**ANNOTATIONS, "deployment.kubernetes.io/revision": "2"}, False),
        ("metadata.annotations", {"c": "e"}, True),
        ("metadata.annotations", None, True),
        ("status.readyReplicas", 1, False),
        ("status.conditions", [1], False),
    ],
)
def test_which_changes_of_a_deployment_matter(path: str, value: Any, matters: bool) -> None:
    assert (fingerprint(changed(SPECIFIED, path, value)) != fingerprint(SPECIFIED)) is matters


def test_objects_without_a_generation_and_those_that_others_write_into_are_told_apart_by_their_version() -> None:
    versions = {"metadata": {"name": "a", "resourceVersion": "7"}}
    assert fingerprint({**versions, "kind": "ConfigMap"}) == "7"
    numbered = {"metadata": {"name": "a", "resourceVersion": "7", "generation": 1}}
    assert [fingerprint({**numbered, "kind": kind}) for kind in ("Service", "ServiceAccount")] == ["7", "7"]
    assert fingerprint({**numbered, "kind": "Gateway", "status": {"readyReplicas": 1}}) == (1, None, {})


# -- numbers and settings ----------------------------------------------------------------------------------------------


def test_the_metrics_of_the_operator() -> None:
    metrics = OperatorMetrics()
    metrics.reconciled.labels("install", "done").inc()
    metrics.corrected.inc(2)
    metrics.operators.set(3)
    lines = [
        line
        for line in metrics.render().decode().splitlines()
        if not line.startswith("# TYPE") and "_created" not in line
    ]
    assert lines == [
        "# HELP istio_install_operator_reconcile_request_total Reconciliations of IstioOperators, by reason and result",
        'istio_install_operator_reconcile_request_total{reason="install",result="done"} 1.0',
        "# HELP istio_install_operator_corrected_resource_total Corrections of installed objects that were changed or deleted",
        "istio_install_operator_corrected_resource_total 2.0",
        "# HELP istio_install_operator_custom_resources Watched IstioOperators",
        "istio_install_operator_custom_resources 3.0",
        "# HELP istio_install_operator_version Version of the operator",
        f'istio_install_operator_version{{version="{VERSION}"}} 1.0',
    ]


def test_the_settings_of_the_operator_without_any_flag() -> None:
    settings = OperatorSettings()
    assert dataclasses.asdict(settings.watch) == {
        "namespaces": "",
        "revision": "",
        "kubeconfig": "",
        "timeout": parse_duration("300s"),
    }
    assert dataclasses.asdict(settings.replica) == {
        "lease_namespace": "",
        "renew_deadline": parse_duration("10s"),
        "pod_name": "",
        "pod_namespace": "",
        "deployment": "istio-operator",
        "address": ":8383",
    }
    declared = {
        name: field.metadata
        for part in (settings.watch, settings.replica)
        for name, field in part.__dataclass_fields__.items()
    }
    assert {name: (told["flag"], told["env"]) for name, told in declared.items()} == {
        "namespaces": ("", "WATCH_NAMESPACE"),
        "revision": ("", "REVISION"),
        "kubeconfig": ("kubeconfig", "KUBECONFIG"),
        "timeout": ("", "WAIT_FOR_RESOURCES_TIMEOUT"),
        "lease_namespace": ("", "LEADER_ELECTION_NAMESPACE"),
        "renew_deadline": ("", "RENEW_DEADLINE"),
        "pod_name": ("", "POD_NAME"),
        "pod_namespace": ("", "POD_NAMESPACE"),
        "deployment": ("", "OPERATOR_NAME"),
        "address": ("monitoringAddr", ""),
    }


def test_the_names_of_the_operators_kind_and_finalizer() -> None:
    assert (KIND.api_version, KIND.name, FINALIZER) == (
        "install.istio.io/v1alpha1",
        "IstioOperator",
        "istio-finalizer.install.istio.io",
    )


# -- the finalizer ---------------------------------------------------------------------------------------------------------


class Contended:
    """An API server at which somebody else is faster so many times."""

    def __init__(self, conflicts: int, **metadata: Any) -> None:
        self.conflicts, self.patches = conflicts, list[Plain]()
        self.metadata = {"resourceVersion": "1", **metadata}

    async def get(self, key: ResourceKey) -> Plain:
        return {"metadata": {**self.metadata}}

    async def patch(self, key: ResourceKey, change: Plain) -> Plain:
        self.patches.append(change["metadata"])
        if len(self.patches) <= self.conflicts:
            raise Conflict(409, "Conflict", "somebody was faster")
        return change


@pytest.mark.parametrize(("conflicts", "gives_up"), [(9, False), (10, True)])
async def test_the_finalizer_is_tried_ten_times_while_somebody_is_faster(conflicts: int, gives_up: bool) -> None:
    there: Any = Contended(conflicts, finalizers=["a", FINALIZER])
    try:
        await remove_finalizer(there, ResourceKey(KIND, "istio-system", "mesh"))
    except Conflict:
        assert gives_up
    else:
        assert not gives_up
    assert there.patches == [{"finalizers": ["a"], "resourceVersion": "1"}] * 10


@pytest.mark.parametrize(
    ("metadata", "patches"),
    [
        ({}, [{"finalizers": [FINALIZER], "resourceVersion": "1"}]),
        ({"finalizers": ["a"]}, [{"finalizers": ["a", FINALIZER], "resourceVersion": "1"}]),
        ({"finalizers": [FINALIZER]}, []),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, []),
    ],
)
async def test_the_finalizer_is_added_where_that_may_still_be(metadata: Plain, patches: list[Plain]) -> None:
    there: Any = Contended(0, **metadata)
    await add_finalizer(there, istio_operator_of(istio_operator()))
    assert there.patches == patches
