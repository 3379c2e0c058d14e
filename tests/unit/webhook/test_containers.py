"""Tests of lists of containers."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.inject.containers import find_anywhere, in_order, with_container


def test_find_and_replace_container() -> None:
    main, init = {"name": "app", "image": "1"}, {"name": "istio-proxy", "image": "2"}
    pod: dict[str, Any] = {"spec": {"containers": [main, {"name": "b"}], "initContainers": [{"name": "c"}, init]}}
    assert [find_anywhere(pod, name) for name in ("app", "istio-proxy", "none")] == [main, init, None]
    changed = [with_container(pod, {"name": name, "image": "3"})["spec"] for name in ("app", "istio-proxy")]
    assert changed == [
        {"containers": [{"name": "app", "image": "3"}, {"name": "b"}], "initContainers": [{"name": "c"}, init]},
        {"containers": [main, {"name": "b"}], "initContainers": [{"name": "c"}, {"name": "istio-proxy", "image": "3"}]},
    ]


@pytest.mark.parametrize(
    ("main", "init", "hold", "expected_main", "expected_init"),
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
def test_order_of_containers(main: str, init: str, hold: bool, expected_main: str, expected_init: str) -> None:
    def containers(names: str) -> list[dict[str, Any]]:
        return [{"name": name} for name in names.split()]

    ordered = in_order(
        {
            "kind": "Pod",
            "spec": {"containers": containers(main), **({"initContainers": containers(init)} if init else {})},
        },
        hold,
    )
    assert ordered == {
        "kind": "Pod",
        "spec": {
            "containers": containers(expected_main),
            **({"initContainers": containers(expected_init)} if init else {}),
        },
    }
