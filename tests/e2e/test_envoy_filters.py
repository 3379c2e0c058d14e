"""EnvoyFilters in a stock Envoy: the rules of values, each context and operation, checked in its config dump and by a client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from testing.processes.patched_gateway import Case, PatchedGateway
from testing.processes.process import envoy_binary, eventually
from testing.tables import envoy_rule_cases
from testing.tables.envoy_filter_cases import CASES


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatchedGateway]:
    env = PatchedGateway(tmp_path_factory.mktemp("patched"), CASES)
    try:
        env.wait_until_configured()
        yield env
        assert env.envoy.rejected() == {}, env.envoy.tail()
    finally:
        env.stop()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_patch_is_active(case: Case, edge: PatchedGateway) -> None:
    at = edge.at[case.name]
    assert case.is_applied(at)
    assert case.takes_effect(at)


def test_every_patch_matches(edge: PatchedGateway) -> None:
    def has_no_problems() -> bool:
        problems = json.loads(edge.plane.get("/debug/problemz"))
        return [problem for problem in problems if problem["object"]["kind"].endswith("EnvoyFilter")] == []

    eventually(has_no_problems, 30, "no problems of EnvoyFilters")


def test_number_of_cases() -> None:
    assert len(CASES) >= 40


def test_rules_of_values_agree_with_envoy() -> None:
    for case in envoy_rule_cases.CASES:
        done = subprocess.run(
            [envoy_binary(), "--mode", "validate", "--config-yaml", json.dumps(case.bootstrap()), "-l", "critical"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == (not case.fault), (case.name, done.stdout, done.stderr)
