"""Strategic merge of pods."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.pod.merge import MergeError, merge
from webhook.pod.schema import POD


def merge_specs(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    return merge({"spec": original}, {"spec": patch}, POD)["spec"]


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


def test_list_items_are_merged_by_key_and_new_ones_come_first() -> None:
    result = merge_specs(
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
        {"containers": [{"name": "c"}, {"name": "a", "tty": True}]},
    )
    assert result["containers"] == [{"name": "c"}, {"name": "a", "image": "1", "tty": True}, {"name": "b"}]


def test_order_of_existing_items_is_preserved() -> None:
    result = merge_specs({"volumes": [{"name": n} for n in "abcd"]}, {"volumes": [{"name": "c"}, {"name": "x"}]})
    assert names(result["volumes"]) == ["a", "b", "c", "x", "d"]


def test_null_removes_fields() -> None:
    assert merge_specs({"hostname": "a", "subdomain": "b"}, {"hostname": None, "os": None}) == {"subdomain": "b"}
    assert merge_specs({}, {"volumes": [{"name": "a", "emptyDir": None}]}) == {"volumes": [{"name": "a"}]}


def test_lists_without_a_merge_key_are_replaced() -> None:
    assert merge_specs({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}) == {
        "tolerations": [{"key": "b"}]
    }
    args = merge_specs({"containers": [{"name": "a", "args": ["1"]}]}, {"containers": [{"name": "a", "args": ["2"]}]})
    assert args["containers"][0]["args"] == ["2"]


def test_numeric_and_repeated_merge_keys() -> None:
    ports = [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]
    result = merge_specs(
        {"containers": [{"name": "a", "ports": ports}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 53, "name": "dns"}]}]},
    )
    assert result["containers"][0]["ports"] == [
        {"containerPort": 53, "protocol": "UDP", "name": "dns"},
        {"containerPort": 53, "protocol": "TCP"},
    ]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ([{"name": "a", "$patch": "delete"}], ["b"]),
        ([{"$patch": "replace"}, {"name": "c"}], ["c"]),
        ([{"name": "c"}, {"name": "b", "$patch": "delete"}], ["c", "a"]),
    ],
)
def test_list_directives(patch: list[dict[str, Any]], expected: list[str]) -> None:
    assert names(merge_specs({"volumes": [{"name": "a"}, {"name": "b"}]}, {"volumes": patch})["volumes"]) == expected


def test_map_directives() -> None:
    replaced = merge_specs(
        {"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "replace", "fsGroup": 2}}
    )
    assert replaced == {"securityContext": {"fsGroup": 2}}
    assert merge_specs({"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "delete"}}) == {
        "securityContext": {}
    }
    volume = merge_specs(
        {"volumes": [{"name": "a", "emptyDir": {}}]},
        {"volumes": [{"name": "a", "$retainKeys": ["name", "secret"], "secret": {}}]},
    )
    assert volume == {"volumes": [{"name": "a", "secret": {}}]}
    finalizers = merge(
        {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, POD
    )
    assert finalizers == {"metadata": {"finalizers": ["b"]}}
    with pytest.raises(MergeError, match="unknown patch type"):
        merge_specs({"securityContext": {}}, {"securityContext": {"$patch": "often"}})


def test_item_without_its_merge_key_is_refused() -> None:
    with pytest.raises(MergeError, match="does not contain declared merge key: name"):
        merge_specs({"containers": [{"name": "a"}]}, {"containers": [{"image": "x"}]})


def test_set_element_order() -> None:
    order = [{"name": "c"}, {"name": "b"}]
    result = merge_specs(
        {"volumes": [{"name": "a"}]}, {"volumes": [{"name": "b"}, {"name": "c"}], "$setElementOrder/volumes": order}
    )
    assert names(result["volumes"])[:2] == ["c", "b"]


def test_merge_directive_and_lists_of_scalars() -> None:
    merged_map = merge_specs(
        {"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "merge", "fsGroup": 2}}
    )
    assert merged_map == {"securityContext": {"runAsUser": 1, "fsGroup": 2}}
    assert merge({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["c", "a"]}}, POD) == {
        "metadata": {"finalizers": ["c", "a", "b"]}
    }
    assert merge_specs({"hostname": "a"}, {"$deleteFromPrimitiveList/hostname": ["a"]}) == {"hostname": "a"}


def test_long_lists_are_merged_in_linear_time() -> None:
    count = 50_000
    env = [{"name": f"n{index}", "value": "a"} for index in range(count)]
    order = [{"name": item["name"]} for item in env]
    original = {"containers": [{"name": "c", "env": [*env, {"name": "last"}]}]}
    patch = {"containers": [{"name": "c", "env": env[::-1], "$setElementOrder/env": order}]}
    assert merge_specs(original, patch)["containers"][0]["env"] == [*env, {"name": "last"}]
    repeated = {"containers": [{"name": "c", "env": [{"name": "n"}] * count}]}
    assert len(merge_specs(repeated, patch)["containers"][0]["env"]) == 2 * count


@pytest.mark.parametrize("items", [[1], ["c"], [None], [{"name": {}}], [{"name": ["c"]}], [[]]])
def test_items_without_a_scalar_key_are_refused(items: list[Any]) -> None:
    with pytest.raises(MergeError, match="the items are not mappings with a string or number in name"):
        merge_specs({"containers": [{"name": "c"}]}, {"containers": items})
    with pytest.raises(MergeError, match="the items are not mappings"):
        merge_specs({"containers": items}, {"containers": [{"name": "c"}]})
