"""Which pods are injected, and in which order their containers are afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.selector import LabelSelector, LabelSelectorRequirement
from webhook.inject.config import WrittenConfig
from webhook.inject.containers import in_order
from webhook.inject.decision import is_injected

INJECT = "sidecar.istio.io/inject"
ON, OFF = WrittenConfig(policy="enabled"), WrittenConfig(policy="disabled")
WEB, JOB = LabelSelector(match_labels={"kind": "web"}), LabelSelector(match_labels={"kind": "job"})
WRONG = LabelSelector(match_expressions=(LabelSelectorRequirement(key="kind", operator="Sometimes"),))
CHOSEN = WrittenConfig(policy="disabled", never_inject_selector=(JOB,), always_inject_selector=(LabelSelector(), WEB))
MISTAKEN = WrittenConfig(policy="disabled", always_inject_selector=(WRONG,))
NEITHER = WrittenConfig(policy="often")


@pytest.mark.parametrize(
    ("config", "labels", "annotations", "injected", "said"),
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
        (CHOSEN, {"kind": "web"}, {}, True, []),
        (CHOSEN, {"kind": "other"}, {}, False, []),
        (CHOSEN, {"kind": "job"}, {}, False, []),
        (WrittenConfig(policy="enabled", never_inject_selector=(JOB,)), {"kind": "job"}, {}, False, []),
        (WrittenConfig(policy="enabled", never_inject_selector=(JOB,)), {"kind": "job", INJECT: "true"}, {}, True, []),
        (WrittenConfig(policy="enabled", never_inject_selector=(LabelSelector(),)), {}, {}, True, []),
        (MISTAKEN, {"kind": "web"}, {}, False, [f"invalid selector of the injector's configuration: {WRONG}"]),
        (NEITHER, {INJECT: "true"}, {}, False, ["policy 'often' is neither enabled nor disabled: no pod is injected"]),
    ],
)
def test_a_pod_is_injected_by_its_own_wish_then_by_selectors_then_by_the_policy(
    config: WrittenConfig,
    labels: dict[str, str],
    annotations: dict[str, str],
    injected: bool,
    said: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert is_injected({"metadata": {"labels": labels, "annotations": annotations}}, config) is injected
    assert [record.getMessage() for record in caplog.records] == said


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"])
def test_pods_of_the_system_are_left_alone(namespace: str) -> None:
    assert not is_injected({"metadata": {"namespace": namespace, "labels": {INJECT: "true"}}}, ON)


def test_a_pod_in_the_network_of_its_node_is_left_alone() -> None:
    assert not is_injected({"metadata": {"labels": {INJECT: "true"}}, "spec": {"hostNetwork": True}}, ON)
    assert is_injected({}, ON)


@pytest.mark.parametrize(
    ("main", "init", "hold", "wanted_main", "wanted_init"),
    [
        ("istio-proxy app", "", False, "app istio-proxy", ""),
        ("app istio-proxy other", "", True, "istio-proxy app other", ""),
        ("app", "istio-init a", False, "app", "a istio-init"),
        (
            "app",
            "a enable-core-dump istio-init istio-validation b",
            False,
            "app",
            "istio-validation a b istio-init enable-core-dump",
        ),
        (
            "app",
            "a enable-core-dump istio-proxy istio-validation istio-init b",
            False,
            "app",
            "istio-init istio-validation istio-proxy enable-core-dump a b",
        ),
    ],
)
def test_the_proxy_comes_last_or_first_and_what_prepares_the_network_where_it_cuts_nobody_off(
    main: str, init: str, hold: bool, wanted_main: str, wanted_init: str
) -> None:
    def of(names: str) -> list[dict[str, Any]]:
        return [{"name": name} for name in names.split()]

    found = in_order(
        {"kind": "Pod", "spec": {"containers": of(main), **({"initContainers": of(init)} if init else {})}}, hold
    )
    assert found == {
        "kind": "Pod",
        "spec": {"containers": of(wanted_main), **({"initContainers": of(wanted_init)} if init else {})},
    }
