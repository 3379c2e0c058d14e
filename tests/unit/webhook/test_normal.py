"""Normalization of pods."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.pod.normal import ShapeError, normalize
from webhook.pod.schema import POD


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"containers": [{"name": 1}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a", "env": [{"name": "b", "value": True}]}]}, "spec.containers[0].env[0].value"),
        (
            {"containers": [{"name": "a", "resources": {"limits": {"cpu": "lots"}}}]},
            "spec.containers[0].resources.limits[cpu]",
        ),
        ({"hostNetwork": "true"}, "spec.hostNetwork"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[a]"),
    ],
)
def test_paths_of_type_errors(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(ShapeError) as error:
        normalize({"spec": spec}, POD)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": {}}, "spec.containers: expected a list, got a mapping"),
        ({"containers": ["a"]}, "spec.containers[0]: expected a mapping, got a string"),
        ({"nodeSelector": []}, "spec.nodeSelector: expected a mapping, got a list"),
        ({"hostname": True}, 'spec.hostname: expected a string, got true: quote it: "true"'),
        ({"nodeSelector": {"a": 8}}, 'spec.nodeSelector[a]: expected a string, got 8: quote it: "8"'),
        (
            {"activeDeadlineSeconds": True},
            "spec.activeDeadlineSeconds: expected an integer, got true or false",
        ),
        (
            {"activeDeadlineSeconds": 1.5},
            "spec.activeDeadlineSeconds: expected an integer, got a number",
        ),
        ({"containers": [None]}, "spec.containers[0]: expected a mapping, got nothing"),
    ],
)
def test_messages_of_type_errors(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError) as error:
        normalize({"spec": spec}, POD)
    assert str(error.value) == message


def test_omitted_zero_values_become_null() -> None:
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
