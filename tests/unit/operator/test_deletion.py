"""Tests of finalizers and of the removal of the operator."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.kube.api_errors import Conflict
from pilot.kube.object_client import ResourceKey
from pilot.operator.deletion import add_finalizer, is_operator_removed, remove_all_finalizers, remove_finalizer
from pilot.operator.istio_operator_resource import FINALIZER, KIND, istio_operator_of
from testing.apiserver.request_info import RequestInfo
from testing.control_planes.running_operator import OPERATOR_NAMESPACE, OperatorCluster
from testing.kube.installations import SYSTEM

Plain = dict[str, Any]


def istio_operator(spec: Any = None, **metadata: Any) -> Plain:
    all_metadata = {"name": "mesh", "namespace": "istio-system", **metadata}
    return {
        "apiVersion": "install.istio.io/v1alpha1",
        "kind": "IstioOperator",
        "metadata": all_metadata,
        **({} if spec is None else {"spec": spec}),
    }


class ConflictingClient:
    """An API server that answers this many patches with a conflict."""

    def __init__(self, conflicts: int, **metadata: Any) -> None:
        self.conflicts, self.patches = conflicts, list[Plain]()
        self.metadata = {"resourceVersion": "1", **metadata}

    async def get(self, key: ResourceKey) -> Plain:
        return {"metadata": {**self.metadata}}

    async def patch(self, key: ResourceKey, change: Plain) -> Plain:
        self.patches.append(change["metadata"])
        if len(self.patches) <= self.conflicts:
            raise Conflict(409, "Conflict", "the object has been modified")
        return change


@pytest.mark.parametrize(("conflicts", "fails"), [(9, False), (10, True)])
async def test_finalizer_is_removed_within_ten_attempts(conflicts: int, fails: bool) -> None:
    client: Any = ConflictingClient(conflicts, finalizers=["a", FINALIZER])
    try:
        await remove_finalizer(client, ResourceKey(KIND, "istio-system", "mesh"))
    except Conflict:
        assert fails
    else:
        assert not fails
    assert client.patches == [{"finalizers": ["a"], "resourceVersion": "1"}] * 10


@pytest.mark.parametrize(
    ("metadata", "patches"),
    [
        ({}, [{"finalizers": [FINALIZER], "resourceVersion": "1"}]),
        ({"finalizers": ["a"]}, [{"finalizers": ["a", FINALIZER], "resourceVersion": "1"}]),
        ({"finalizers": [FINALIZER]}, []),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, []),
    ],
)
async def test_finalizer_is_added_unless_being_deleted(metadata: Plain, patches: list[Plain]) -> None:
    client: Any = ConflictingClient(0, **metadata)
    await add_finalizer(client, istio_operator_of(istio_operator()))
    assert client.patches == patches


def is_istio_operator_patch(request: RequestInfo) -> bool:
    return request.verb == "patch" and request.resource.plural == "istiooperators" and not request.subresource


async def test_finalizer_is_added_and_removed_despite_conflicts() -> None:
    async with OperatorCluster("", SYSTEM) as cluster:
        assert cluster.operator is not None
        objects = cluster.operator.controller.objects
        ignored = {"install.istio.io/ignoreReconcile": "true"}
        await cluster.write(
            SYSTEM,
            "mesh",
            {"profile": "empty", "revision": "r1"},
            finalizers=["example.com/other"],
            annotations=ignored,
        )
        custom = istio_operator_of(cluster.resource(SYSTEM, "mesh") or {})
        cluster.server.faults.refuse(409, times=2, matching=is_istio_operator_patch)
        await add_finalizer(objects, custom)
        await add_finalizer(objects, custom)
        assert (cluster.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == ["example.com/other", FINALIZER]
        assert await remove_all_finalizers(objects, None, "r2") == []
        assert await remove_all_finalizers(objects, ["elsewhere"], "") == []
        cluster.server.faults.refuse(409, times=2, matching=is_istio_operator_patch)
        assert await remove_all_finalizers(objects, [SYSTEM], "r1") == [custom.key]
        assert (cluster.resource(SYSTEM, "mesh") or {})["metadata"]["finalizers"] == ["example.com/other"]
        assert await remove_all_finalizers(objects, None, "") == []
        await remove_finalizer(objects, custom.key._replace(name="missing"))


async def test_operator_is_removed_with_its_deployment_or_namespace() -> None:
    async with OperatorCluster("", SYSTEM) as cluster:
        assert cluster.operator is not None
        objects = cluster.operator.controller.objects
        removed = [
            await is_operator_removed(objects, OPERATOR_NAMESPACE, name) for name in ("istio-operator", "another")
        ]
        assert [*removed, await is_operator_removed(objects, "elsewhere", "istio-operator")] == [False, True, True]
