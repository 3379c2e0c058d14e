"""Tests of the injection decision."""

from __future__ import annotations

import pytest

from pilot.config.selector import LabelSelector, LabelSelectorRequirement
from webhook.inject.config import WrittenConfig
from webhook.inject.decision import is_injected

INJECT = "sidecar.istio.io/inject"
ON, OFF = WrittenConfig(policy="enabled"), WrittenConfig(policy="disabled")
WEB, JOB = LabelSelector(match_labels={"kind": "web"}), LabelSelector(match_labels={"kind": "job"})
INVALID = LabelSelector(match_expressions=(LabelSelectorRequirement(key="kind", operator="Sometimes"),))
BY_SELECTOR = WrittenConfig(
    policy="disabled", never_inject_selector=(JOB,), always_inject_selector=(LabelSelector(), WEB)
)
INVALID_SELECTOR = WrittenConfig(policy="disabled", always_inject_selector=(INVALID,))
INVALID_POLICY = WrittenConfig(policy="often")


@pytest.mark.parametrize(
    ("config", "labels", "annotations", "expected", "warnings"),
    [
        (ON, {}, {}, True, []),
        (OFF, {}, {}, False, []),
        (OFF, {INJECT: "true"}, {}, True, []),
        (ON, {INJECT: "false"}, {}, False, []),
        (OFF, {}, {INJECT: "true"}, True, []),
        (ON, {}, {INJECT: "false"}, False, []),
        (ON, {INJECT: "true"}, {INJECT: "false"}, True, []),
        (ON, {INJECT: ""}, {INJECT: "false"}, True, []),
        (ON, {INJECT: "yes"}, {}, True, [f"invalid value for {INJECT}: 'yes'; only 'true' and 'false' are accepted"]),
        (OFF, {}, {INJECT: "1"}, False, [f"invalid value for {INJECT}: '1'; only 'true' and 'false' are accepted"]),
        (BY_SELECTOR, {"kind": "web"}, {}, True, []),
        (BY_SELECTOR, {"kind": "other"}, {}, False, []),
        (BY_SELECTOR, {"kind": "job"}, {}, False, []),
        (WrittenConfig(policy="enabled", never_inject_selector=(JOB,)), {"kind": "job"}, {}, False, []),
        (WrittenConfig(policy="enabled", never_inject_selector=(JOB,)), {"kind": "job", INJECT: "true"}, {}, True, []),
        (WrittenConfig(policy="enabled", never_inject_selector=(LabelSelector(),)), {}, {}, True, []),
        (
            INVALID_SELECTOR,
            {"kind": "web"},
            {},
            False,
            [f"invalid selector in the injector's configuration: {INVALID}"],
        ),
        (
            INVALID_POLICY,
            {INJECT: "true"},
            {},
            False,
            ["policy 'often' is neither enabled nor disabled: no pod is injected"],
        ),
    ],
)
def test_precedence_of_labels_selectors_and_policy(
    config: WrittenConfig,
    labels: dict[str, str],
    annotations: dict[str, str],
    expected: bool,
    warnings: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert is_injected({"metadata": {"labels": labels, "annotations": annotations}}, config) is expected
    assert [record.getMessage() for record in caplog.records] == warnings


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"])
def test_system_namespaces_are_not_injected(namespace: str) -> None:
    assert not is_injected({"metadata": {"namespace": namespace, "labels": {INJECT: "true"}}}, ON)


def test_host_network_pods_are_not_injected() -> None:
    assert not is_injected({"metadata": {"labels": {INJECT: "true"}}, "spec": {"hostNetwork": True}}, ON)
    assert is_injected({}, ON)
