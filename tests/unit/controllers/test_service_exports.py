"""Which Services are exported, how, and what an API server that refuses means for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pilot.controllers.service_exports import ServiceExportController
from pilot.kube.api_errors import ApiError, Conflict, NotFound
from pilot.kube.list_watch import NamespacedName, ObjectChange
from testing.kube.kube_access import chance, pace

TEA, CUPS = NamespacedName("shop", "tea"), NamespacedName("shop", "cups")


class Client:
    """Keeps what an API server is asked for, and refuses it where a test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.refusal: ApiError | None = None

    async def call(self, verb: str, path: str, body: bytes) -> bytes:
        self.calls.append((verb, path, msgspec.json.decode(body)))
        if self.refusal is not None:
            raise self.refusal
        return b"{}"


class Exports:
    """The part with a client that is a stand-in; `looked` has what it wants to look at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client, self.looked = Client(), list[NamespacedName]()
        client: Any = self.client
        self.part = ServiceExportController(
            client, lambda namespace, name: (namespace, name) == tuple(CUPS), pace(), chance(1)
        )
        monkeypatch.setattr(self.part._reconciler, "enqueue", self.looked.extend)

    async def receive(self, name: NamespacedName, uid: str | None) -> None:
        raw = msgspec.json.encode({"metadata": {"uid": uid}}) if uid is not None else None
        await self.part._receive([ObjectChange(name, raw)])


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> Exports:
    return Exports(monkeypatch)


async def test_a_service_is_exported_once_with_itself_as_the_owner(exports: Exports) -> None:
    await exports.receive(TEA, "1")
    await exports.receive(TEA, "1")  # an edit
    assert exports.looked == [TEA]
    await exports.part._reconcile(TEA)
    metadata = {
        "name": "tea",
        "namespace": "shop",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "tea", "uid": "1"}],
    }
    made = {"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport", "metadata": metadata}
    assert exports.client.calls == [
        ("POST", "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/shop/serviceexports", made)
    ]


async def test_a_service_that_was_made_again_is_exported_again(exports: Exports) -> None:
    await exports.receive(TEA, "1")
    await exports.receive(TEA, None)
    await exports.part._reconcile(TEA)
    assert exports.client.calls == []
    await exports.receive(TEA, "1")
    await exports.receive(TEA, "2")
    assert exports.looked == [TEA, TEA, TEA]


async def test_a_service_that_stays_in_its_cluster_is_not_exported(exports: Exports) -> None:
    await exports.receive(CUPS, "1")
    await exports.part._reconcile(CUPS)
    assert exports.client.calls == []


@pytest.mark.parametrize(
    ("refusal", "again"),
    [
        (Conflict(409, "AlreadyExists", ""), False),
        (NotFound(404, "NotFound", ""), False),
        (ApiError(403, "Forbidden", ""), False),
        (ApiError(404, "Other", ""), True),
        (ApiError(500, "InternalError", ""), True),
    ],
)
async def test_what_is_there_or_ends_is_left_and_the_rest_tried_again(
    exports: Exports, refusal: ApiError, again: bool
) -> None:
    await exports.receive(TEA, "1")
    exports.client.refusal = refusal
    if again:
        with pytest.raises(ApiError):
            await exports.part._reconcile(TEA)
    else:
        await exports.part._reconcile(TEA)
    assert len(exports.client.calls) == 1
