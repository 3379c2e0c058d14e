"""Values of patches that violate rules that Envoy checks in its code."""

from __future__ import annotations

import pytest

from pilot.config.patch_value import read_patch_value
from pilot.lib.protobuf.fault import shown
from testing.tables.envoy_rule_cases import CASES, RuleCase


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_faults_of_added_value(case: RuleCase) -> None:
    _, faults = read_patch_value(case.apply_to, "ADD", case.value)
    assert [f"{shown(place)}: {text}".removeprefix(": ") for _, place, text in faults] == [case.fault] * bool(
        case.fault
    )


def test_incomplete_value_may_be_merged() -> None:
    assert read_patch_value("CLUSTER", "MERGE", {"type": "ORIGINAL_DST"})[1] == []
