"""Platform detection, warnings about CNI plugins, and object comparison."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pilot.install.cluster_checks import cni_warnings, detect_platform
from pilot.install.verification import _comparable, _differing_paths
from pilot.kube.api_errors import KubeError
from pilot.kube.object_client import ResourceKey

EXCLUSIVE = "Cilium removes the CNI configuration of other plugins; set cni-exclusive to false in the ConfigMap kube-system/cilium-config"
SOCKETS = "Cilium's socket load balancing bypasses the proxies of pods; set bpf-lb-sock-hostns-only to true in the ConfigMap kube-system/cilium-config"
CALICO = "Calico's connect-time load balancing bypasses the proxies of pods; set bpfConnectTimeLoadBalancing to Disabled in the FelixConfiguration"


class FakeServer:
    """A server with the two queried objects, by name."""

    def __init__(self, version: str = "v1.30.0", **objects: Any) -> None:
        self.server_version, self.objects = version, objects

    async def version(self) -> str:
        return self.server_version

    async def get(self, key: ResourceKey) -> dict[str, Any] | None:
        response = self.objects.get(
            {"ConfigMap kube-system/cilium-config": "cilium", "FelixConfiguration default": "calico"}[str(key)]
        )
        if isinstance(response, KubeError):
            raise response
        return response


@pytest.mark.parametrize(("version", "platform"), [("v1.30.1-gke.200", "gke"), ("v1.30.1", ""), ("v1.30.1-eks-1", "")])
async def test_detect_platform(version: str, platform: str) -> None:
    assert await detect_platform(FakeServer(version)) == platform  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("objects", "warnings"),
    [
        ({}, []),
        ({"cilium": {"data": None}, "calico": {}}, []),
        ({"cilium": {"data": {"cni-exclusive": "true"}}}, [EXCLUSIVE]),
        ({"cilium": {"data": {"cni-exclusive": "false", "bpf-lb-sock": "true"}}}, [SOCKETS]),
        ({"cilium": {"data": {"bpf-lb-sock": "true", "bpf-lb-sock-hostns-only": "true"}}}, []),
        ({"cilium": {"data": {"bpf-lb-sock": "false"}}}, []),
        ({"calico": {"spec": {"bpfEnabled": True}}}, [CALICO]),
        ({"calico": {"spec": {"bpfEnabled": True, "bpfConnectTimeLoadBalancing": "TCP"}}}, [CALICO]),
        ({"calico": {"spec": {"bpfEnabled": True, "bpfConnectTimeLoadBalancing": "Disabled"}}}, []),
        ({"calico": {"spec": {"bpfEnabled": False}}}, []),
        (
            {
                "cilium": {"data": {"cni-exclusive": "true", "bpf-lb-sock": "true"}},
                "calico": {"spec": {"bpfEnabled": True}},
            },
            [EXCLUSIVE, SOCKETS, CALICO],
        ),
        ({"cilium": KubeError("forbidden"), "calico": {"spec": {"bpfEnabled": True}}}, []),
    ],
)
async def test_conflicting_cni_plugins(objects: dict[str, Any], warnings: list[str]) -> None:
    for component, expected in (("Cni", warnings), ("Pilot", [])):
        plan: Any = SimpleNamespace(steps=[SimpleNamespace(component="Base"), SimpleNamespace(component=component)])
        assert [warning async for warning in cni_warnings(FakeServer(**objects), plan)] == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "c": {"d": [1, {"e": 2}]}}, {"b": 1, "c": {"d": [1, {"e": 3}]}}, ["a", "b", "c.d[1].e"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": [1]}, {"a": {"b": 1}}, ["a"]),
        ({"a": {"b": 1}}, {"a": None}, ["a"]),
        ([3], [4], ["[0]"]),
    ],
)
def test_differing_paths(one: Any, other: Any, paths: list[str]) -> None:
    assert list(_differing_paths(one, other, "")) == paths


def test_server_fields_are_not_compared() -> None:
    server_fields = {
        "resourceVersion": "5",
        "uid": "u",
        "generation": 2,
        "managedFields": [],
        "creationTimestamp": "now",
    }
    metadata = {"name": "a", "labels": {"b": "c"}, **server_fields}
    plain = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"x": "y"},
        "status": {"ready": True},
    }
    assert _comparable(plain) == {"metadata": {"name": "a", "labels": {"b": "c"}}, "data": {"x": "y"}}
