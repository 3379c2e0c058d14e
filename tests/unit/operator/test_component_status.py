"""Tests of the status of components."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pilot.install.install_plan import InstallPlan, Step
from pilot.install.installation_labels import OperatorOwner
from pilot.install.installer import InstallOutcome, StepFailure
from pilot.lib.build_info import build_info
from pilot.operator.component_status import (
    ComponentStatus,
    build_status,
    build_status_patch,
    outcome_status,
    readiness_status,
    uniform_status,
    worst_status,
)
from testing.apiserver.patches import merge_patch

Plain = dict[str, Any]
VERSION = build_info().version
OBJECT: Plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"}}
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


def test_component_status_joins_the_errors_of_its_gateways() -> None:
    assert outcome_status(PLAN, InstallOutcome((), (), ("a remark",))) == uniform_status(PLAN, HEALTHY)
    one = StepFailure(
        "IngressGateways one", "it did not come up", ("  Deployment istio-system/one: 0 of 1 pods ready", "no image ")
    )
    two = StepFailure("IngressGateways two", "refused")
    error = "it did not come up; Deployment istio-system/one: 0 of 1 pods ready; no image"
    assert outcome_status(PLAN, InstallOutcome((one,), (), ()))["IngressGateways"] == ComponentStatus("ERROR", error)
    both = outcome_status(PLAN, InstallOutcome((one, two), (), ()))
    assert both == {"Base": HEALTHY, "Pilot": HEALTHY, "IngressGateways": ComponentStatus("ERROR", f"{error}; refused")}
    empty = outcome_status(PLAN, InstallOutcome((StepFailure("Cni", "refused"),), (), ()))
    assert empty["Cni"] == ComponentStatus("ERROR", "refused")


def test_unready_component_is_reconciling() -> None:
    status = readiness_status(PLAN, {"Pilot": "Deployment istio-system/istiod: 0 of 1 pods ready", "Cni": "nothing"})
    assert status == {
        "Base": HEALTHY,
        "IngressGateways": HEALTHY,
        "Pilot": ComponentStatus("RECONCILING", "Deployment istio-system/istiod: 0 of 1 pods ready"),
    }


def test_build_status() -> None:
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
    ("statuses", "expected"),
    [
        ([], "HEALTHY"),
        (["HEALTHY"], "HEALTHY"),
        (["HEALTHY", "RECONCILING"], "RECONCILING"),
        (["RECONCILING", "UPDATING"], "UPDATING"),
        (["UPDATING", "ACTION_REQUIRED"], "ACTION_REQUIRED"),
        (["ACTION_REQUIRED", "ERROR", "HEALTHY"], "ERROR"),
        (["UNKNOWN"], "HEALTHY"),
    ],
)
def test_worst_status(statuses: list[str], expected: str) -> None:
    assert worst_status(statuses) == expected


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
def test_status_patch(before: Plain) -> None:
    after = build_status({"Pilot": HEALTHY, "Base": ComponentStatus("ERROR", "late")})
    untouched = copy.deepcopy(before)
    patch = build_status_patch(before, after)
    assert before == untouched
    assert merge_patch({"status": before}, patch) == {"status": after}
