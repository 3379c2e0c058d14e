"""Strategic merge of pods, their amounts, and JSON patches."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.pod.json_patch import apply, differences
from webhook.pod.merge import MergeError, merge
from webhook.pod.normal import ShapeError, normalize
from webhook.pod.quantity import canonical
from webhook.pod.schema import POD


def merged(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    return merge({"spec": original}, {"spec": patch}, POD)["spec"]


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


def test_items_of_a_key_are_merged_and_new_ones_come_before_those_that_the_patch_has_not() -> None:
    found = merged(
        {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
        {"containers": [{"name": "c"}, {"name": "a", "tty": True}]},
    )
    assert found["containers"] == [{"name": "c"}, {"name": "a", "image": "1", "tty": True}, {"name": "b"}]


def test_items_stay_before_those_that_they_were_before() -> None:
    found = merged({"volumes": [{"name": n} for n in "abcd"]}, {"volumes": [{"name": "c"}, {"name": "x"}]})
    assert names(found["volumes"]) == ["a", "b", "c", "x", "d"]


def test_null_takes_a_field_away_and_is_not_added() -> None:
    assert merged({"hostname": "a", "subdomain": "b"}, {"hostname": None, "os": None}) == {"subdomain": "b"}
    assert merged({}, {"volumes": [{"name": "a", "emptyDir": None}]}) == {"volumes": [{"name": "a"}]}


def test_lists_without_a_key_are_replaced() -> None:
    assert merged({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}) == {"tolerations": [{"key": "b"}]}
    args = merged({"containers": [{"name": "a", "args": ["1"]}]}, {"containers": [{"name": "a", "args": ["2"]}]})
    assert args["containers"][0]["args"] == ["2"]


def test_keys_may_be_numbers_and_repeated_ones_stay() -> None:
    ports = [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]
    found = merged(
        {"containers": [{"name": "a", "ports": ports}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 53, "name": "dns"}]}]},
    )
    assert found["containers"][0]["ports"] == [
        {"containerPort": 53, "protocol": "UDP", "name": "dns"},
        {"containerPort": 53, "protocol": "TCP"},
    ]


@pytest.mark.parametrize(
    ("patch", "wanted"),
    [
        ([{"name": "a", "$patch": "delete"}], ["b"]),
        ([{"$patch": "replace"}, {"name": "c"}], ["c"]),
        ([{"name": "c"}, {"name": "b", "$patch": "delete"}], ["c", "a"]),
    ],
)
def test_directives_of_lists(patch: list[dict[str, Any]], wanted: list[str]) -> None:
    assert names(merged({"volumes": [{"name": "a"}, {"name": "b"}]}, {"volumes": patch})["volumes"]) == wanted


def test_directives_of_maps() -> None:
    replaced = merged({"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "replace", "fsGroup": 2}})
    assert replaced == {"securityContext": {"fsGroup": 2}}
    assert merged({"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "delete"}}) == {
        "securityContext": {}
    }
    volume = merged(
        {"volumes": [{"name": "a", "emptyDir": {}}]},
        {"volumes": [{"name": "a", "$retainKeys": ["name", "secret"], "secret": {}}]},
    )
    assert volume == {"volumes": [{"name": "a", "secret": {}}]}
    finalizers = merge(
        {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, POD
    )
    assert finalizers == {"metadata": {"finalizers": ["b"]}}
    with pytest.raises(MergeError, match="unknown patch type"):
        merged({"securityContext": {}}, {"securityContext": {"$patch": "often"}})


def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(MergeError, match="does not contain declared merge key: name"):
        merged({"containers": [{"name": "a"}]}, {"containers": [{"image": "x"}]})


def test_the_order_of_a_list_can_be_asked_for() -> None:
    order = [{"name": "c"}, {"name": "b"}]
    found = merged(
        {"volumes": [{"name": "a"}]}, {"volumes": [{"name": "b"}, {"name": "c"}], "$setElementOrder/volumes": order}
    )
    assert names(found["volumes"])[:2] == ["c", "b"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2000m", "2"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("0", "0"),
        ("100m", "100m"),
        ("1e3", "1e3"),
        ("1E6", "1e6"),
        ("12e-1", "1200e-3"),
        ("-5", "-5"),
        ("+5", "5"),
        (".5", "500m"),
        ("5.", "5"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("3E", "3E"),
        ("1000000", "1M"),
        ("128Mi", "128Mi"),
        ("2048Ki", "2Mi"),
        ("0.25Ki", "256"),
        ("0Ki", "0"),
        ("1.5Ki", "1536"),
        ("1e-9", "1e-9"),
        ("5e-7", "500e-9"),
        ("1024", "1024"),
        ("0.0001Ki", "102400u"),
    ],
)
def test_amounts(text: str, wanted: str) -> None:
    assert canonical(text) == wanted


@pytest.mark.parametrize("text", ["", "a", "1 Gi", "1GiB", "1e", "--1", "1.2.3", "0x1"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        canonical(text)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"containers": {}}, "spec.containers"),
        ({"containers": [{"name": 1}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a", "env": [{"name": "b", "value": True}]}]}, "spec.containers[0].env[0].value"),
        (
            {"containers": [{"name": "a", "resources": {"limits": {"cpu": "lots"}}}]},
            "spec.containers[0].resources.limits[cpu]",
        ),
        ({"hostNetwork": "true"}, "spec.hostNetwork"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[a]"),
        ({"containers": [None]}, "spec.containers[0]"),
    ],
)
def test_what_is_of_another_type_is_refused_with_its_place(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(ShapeError) as error:
        normalize({"spec": spec}, POD)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": {}}, "spec.containers: cannot unmarshal object into Go value of type array"),
        ({"containers": ["a"]}, "spec.containers[0]: cannot unmarshal string into Go value of type object"),
        ({"nodeSelector": []}, "spec.nodeSelector: cannot unmarshal array into Go value of type object"),
        ({"hostname": True}, "spec.hostname: cannot unmarshal bool into Go value of type string"),
        (
            {"activeDeadlineSeconds": True},
            "spec.activeDeadlineSeconds: cannot unmarshal bool into Go value of type int",
        ),
        (
            {"activeDeadlineSeconds": 1.5},
            "spec.activeDeadlineSeconds: cannot unmarshal number into Go value of type int",
        ),
        ({"containers": [None]}, "spec.containers[0]: cannot unmarshal null into Go value of type Container"),
    ],
)
def test_what_is_of_another_type_is_told_as_go_does(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        normalize({"spec": spec}, POD)
    assert str(error.value) == message


def test_zeros_that_say_nothing_become_nulls_and_others_stay() -> None:
    container = {
        "name": "",
        "image": "",
        "tty": False,
        "resources": {},
        "stdin": True,
        "securityContext": {"runAsUser": 0},
        "env": [],
        "unknown": 0,
    }
    spec = {
        "containers": [container],
        "hostNetwork": False,
        "activeDeadlineSeconds": 0,
        "nodeSelector": {},
        "volumes": None,
        "$patch": "merge",
    }
    assert normalize({"spec": spec}, POD) == {
        "spec": {
            "containers": [
                {
                    "name": "",
                    "image": None,
                    "tty": None,
                    "resources": {},
                    "stdin": True,
                    "securityContext": {"runAsUser": 0},
                    "env": None,
                    "unknown": 0,
                }
            ],
            "hostNetwork": None,
            "activeDeadlineSeconds": 0,
            "nodeSelector": {},
            "volumes": None,
            "$patch": "merge",
        }
    }


def test_a_directive_says_that_a_map_is_merged_and_values_of_a_list_are_told_apart_by_themselves() -> None:
    merged_map = merged({"securityContext": {"runAsUser": 1}}, {"securityContext": {"$patch": "merge", "fsGroup": 2}})
    assert merged_map == {"securityContext": {"runAsUser": 1, "fsGroup": 2}}
    assert merge({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["c", "a"]}}, POD) == {
        "metadata": {"finalizers": ["c", "a", "b"]}
    }
    assert merged({"hostname": "a"}, {"$deleteFromPrimitiveList/hostname": ["a"]}) == {"hostname": "a"}


def test_a_json_patch_says_only_what_differs() -> None:
    old = {"a": {"b/c": 1, "d": [1], "e": {}}, "f": 1, "t": 1}
    new = {"a": {"b/c": 2, "d": [1], "g~": 3}, "f": 1, "t": True}
    found = list(differences(old, new))
    assert {(o["op"], o["path"]) for o in found} == {
        ("replace", "/a/b~1c"),
        ("remove", "/a/e"),
        ("add", "/a/g~0"),
        ("replace", "/t"),
    }
    assert apply(old, found) == new
