"""Requests for single objects and locks at an API server."""

from __future__ import annotations

import contextlib
import json
import random
import types
from collections.abc import Mapping
from typing import Any

import pytest

from pilot.kube import object_client as objects_module
from pilot.kube.api_errors import ApiError, Conflict, NotFound, Unreachable
from pilot.kube.leader_lock import (
    CONFIG_MAP,
    HOLDER_KEY_ANNOTATION,
    LEADER_ANNOTATION,
    LEASE,
    LeaderRecord,
    Lock,
    LockKind,
)
from pilot.kube.object_client import ObjectClient, ResourceKey, UnknownKind, VersionedKind, resource_key

Plain = dict[str, Any]


class MaxRandom(random.Random):
    """Random numbers that are always the maximum."""

    def uniform(self, _: float, maximum: float) -> float:
        return maximum


# -- objects -----------------------------------------------------------------------------------------------------------


class ScriptedClient:
    """A client with scripted answers or errors by method, in order. The last one repeats."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers, self.requests = answers, list[str]()

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
        throttle: object = None,
        largest: int = 0,
    ) -> bytes:
        parameters = " ".join(f"{k}={v}" for k, v in (query or {}).items())
        self.requests.append(
            f"{method} {path} {parameters} {body.decode() if body else ''} {content_type if body else ''}".strip()
        )
        answers = self._answers[method]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()


RESOURCES = {
    "resources": [
        {"name": "maps/status", "kind": "Map", "namespaced": True},
        {"name": "maps", "kind": "Map", "namespaced": True},
        {"name": "rules", "kind": "Rule", "namespaced": False},
    ]
}
MAP, RULE = ResourceKey(VersionedKind("v1", "Map"), "a", "m"), ResourceKey(VersionedKind("x.io/v2", "Rule"), "", "r")
APPLY_PATCH = "application/apply-patch+yaml"


def new_client(client: ScriptedClient, dry_run: bool = False) -> ObjectClient:
    return ObjectClient(client, "me", MaxRandom(), dry_run)  # type: ignore[arg-type]


def test_resource_key_of_an_object() -> None:
    assert resource_key({"apiVersion": "v1", "kind": "Map", "metadata": {"namespace": "a", "name": "m"}}) == MAP
    assert resource_key({"apiVersion": "x.io/v2", "kind": "Rule", "metadata": {"namespace": None, "name": "r"}}) == RULE
    assert (str(MAP), str(RULE)) == ("Map a/m", "Rule r")


@pytest.mark.parametrize(("dry_run", "dry"), [(False, ""), (True, " dryRun=All")])
async def test_write_requests(dry_run: bool, dry: str) -> None:
    client = ScriptedClient(GET=[RESOURCES], PATCH=[{"found": 1}], DELETE=[{}])
    object_client = new_client(client, dry_run)
    plain = {"apiVersion": "v1", "kind": "Map", "metadata": {"namespace": "a", "name": "m"}}
    assert await object_client.apply(plain) == {"found": 1}
    assert await object_client.patch(RULE, {"b": 2}, "status") == {"found": 1}
    assert await object_client.patch(RULE, {"b": 2}) == {"found": 1}
    assert await object_client.delete(MAP) is True
    options = '{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Foreground"}'
    text = json.dumps(plain, separators=(",", ":"))
    assert client.requests == [
        "GET /api/v1",
        f"PATCH /api/v1/namespaces/a/maps/m fieldManager=me force=true{dry} {text} {APPLY_PATCH}",
        "GET /apis/x.io/v2",
        f'PATCH /apis/x.io/v2/rules/r/status fieldManager=me{dry} {{"b":2}} application/merge-patch+json',
        f'PATCH /apis/x.io/v2/rules/r fieldManager=me{dry} {{"b":2}} application/merge-patch+json',
        f"DELETE /api/v1/namespaces/a/maps/m {dry.strip()} {options} application/json",
    ]


async def test_read_requests() -> None:
    pages = [
        {"metadata": {"continue": "next"}, "items": [{"a": 1}]},
        {"metadata": {}, "items": [{"kind": "Own"}]},
        {"items": None},
    ]
    client = ScriptedClient(GET=[RESOURCES, {"gitVersion": "v1.2"}, {"m": 1}, *pages])
    object_client = new_client(client)
    assert await object_client.collection(MAP.kind) == "/api/v1/maps"
    assert await object_client.collection(MAP.kind, "b") == "/api/v1/namespaces/b/maps"
    assert await object_client.version() == "v1.2"
    assert await object_client.get(MAP) == {"m": 1}
    map_ = {"apiVersion": "v1", "kind": "Map"}
    assert await object_client.list(MAP.kind, "l=1", "a", "f=2") == [{**map_, "a": 1}, {**map_, "kind": "Own"}]
    assert await object_client.list(MAP.kind) == []
    query = "labelSelector=l=1 fieldSelector=f=2"
    assert client.requests[1:] == [
        "GET /version",
        "GET /api/v1/namespaces/a/maps/m",
        f"GET /api/v1/namespaces/a/maps limit=500 {query}",
        f"GET /api/v1/namespaces/a/maps limit=500 continue=next {query}",
        "GET /api/v1/maps limit=500",
    ]


async def test_missing_objects_and_kinds() -> None:
    not_found = NotFound(404, "NotFound", "")
    client = ScriptedClient(GET=[RESOURCES, not_found], DELETE=[not_found])
    object_client = new_client(client)
    assert (await object_client.get(MAP), await object_client.delete(MAP)) == (None, False)
    unknown = ResourceKey(VersionedKind("v1", "Other"), "a", "o")
    assert (
        await object_client.get(unknown),
        await object_client.list(unknown.kind),
        await object_client.delete(unknown),
    ) == (None, [], False)
    with pytest.raises(UnknownKind, match=r"^the API server does not serve Other in v1$"):
        await object_client.patch(unknown, {})
    assert [request for request in client.requests if request == "GET /api/v1"] == ["GET /api/v1"] * 5, (
        "the kind may be defined by now"
    )


@pytest.mark.parametrize(
    ("errors", "expected", "fails"),
    [
        ([ApiError(code, "x", "") for code in (429, 500, 502, 503)], [0.2, 0.4, 0.8, 1.6], False),
        ([ApiError(504, "x", "", 3.0), Unreachable("x")], [3.0, 0.4], False),
        ([Unreachable("x")] * 5, [0.2, 0.4, 0.8, 1.6], True),
        ([ApiError(501, "x", "")], [], True),
        ([ApiError(430, "x", "")], [], True),
        ([ApiError(505, "x", "")], [], True),
    ],
)
async def test_transient_errors_are_retried(
    errors: list[Exception], expected: list[float], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(round(seconds, 3))

    monkeypatch.setattr(objects_module, "asyncio", types.SimpleNamespace(sleep=sleep))
    object_client = new_client(ScriptedClient(GET=[*errors, {"gitVersion": "v1"}]))
    with pytest.raises(type(errors[-1])) if fails else contextlib.nullcontext():
        assert await object_client.version() == "v1"
    assert delays == expected


# -- locks -------------------------------------------------------------------------------------------------------------

RECORD = LeaderRecord("me", "key", 30, "t1", "t2", 4)
LEADER_ANNOTATIONS = {
    LEADER_ANNOTATION: '{"holderIdentity":"me","holderKey":"key","leaseDurationSeconds":30,"acquireTime":"t1","renewTime":"t2","leaderTransitions":4}'
}
LOCK_METADATA = {"name": "l", "namespace": "n"}
LEASE_SPEC = {
    "holderIdentity": "me",
    "leaseDurationSeconds": 30,
    "acquireTime": "t1",
    "renewTime": "t2",
    "leaseTransitions": 4,
}


@pytest.mark.parametrize(
    ("form", "content", "path"),
    [
        (
            LEASE,
            {"metadata": {**LOCK_METADATA, "annotations": {HOLDER_KEY_ANNOTATION: "key"}}, "spec": LEASE_SPEC},
            "/apis/coordination.k8s.io/v1/namespaces/n/leases",
        ),
        (
            CONFIG_MAP,
            {"metadata": {**LOCK_METADATA, "annotations": LEADER_ANNOTATIONS}},
            "/api/v1/namespaces/n/configmaps",
        ),
    ],
)
async def test_lock_requests(form: LockKind, content: Plain, path: str) -> None:
    plain = {"apiVersion": form.api, "kind": form.kind, **content}
    stored = {**plain, "metadata": {**content["metadata"], "resourceVersion": "7"}}
    client = ScriptedClient(
        POST=[stored, Conflict(409, "x", "")],
        GET=[stored, NotFound(404, "x", "")],
        PUT=[stored, Conflict(409, "x", "")],
    )
    lock = Lock(client, form, "n", "l")  # type: ignore[arg-type]
    lock_object = await lock.write(RECORD, None)
    assert lock_object is not None
    assert (lock_object.record, lock_object.version, lock.name) == (RECORD, "7", "l")
    assert await lock.read() == lock_object
    assert await lock.write(RECORD, lock_object) == lock_object
    assert [await lock.write(RECORD, None), await lock.write(RECORD, lock_object), await lock.read()] == [
        None,
        None,
        None,
    ]
    requests = [request.partition(" {") for request in client.requests]
    assert [request[0].strip() for request in requests] == [
        f"POST {path}",
        f"GET {path}/l",
        f"PUT {path}/l",
        f"POST {path}",
        f"PUT {path}/l",
        f"GET {path}/l",
    ]
    assert [json.loads("{" + requests[n][2]) for n in (0, 2)] == [plain, stored]


@pytest.mark.parametrize(
    ("form", "plain", "expected"),
    [
        (LEASE, {"metadata": {}}, LeaderRecord()),
        (
            LEASE,
            {
                "metadata": {"annotations": None},
                "spec": {"holderIdentity": None, "leaseTransitions": None, "leaseDurationSeconds": None},
            },
            LeaderRecord(),
        ),
        (LEASE, {"metadata": {"annotations": {HOLDER_KEY_ANNOTATION: "key"}}, "spec": LEASE_SPEC}, RECORD),
        (CONFIG_MAP, {"metadata": {}}, LeaderRecord()),
        (CONFIG_MAP, {"metadata": {"annotations": {LEADER_ANNOTATION: "nonsense"}}}, LeaderRecord()),
        (CONFIG_MAP, {"metadata": {"annotations": LEADER_ANNOTATIONS}}, RECORD),
    ],
)
def test_lock_record_of_an_object(form: LockKind, plain: Plain, expected: LeaderRecord) -> None:
    assert form.read(plain) == expected


def test_lease_write_keeps_other_content_and_removes_an_empty_holder_key() -> None:
    plain: Plain = {
        "metadata": {"annotations": {"a": "b", HOLDER_KEY_ANNOTATION: "old"}},
        "spec": {"strategy": "x", "holderIdentity": "other"},
    }
    LEASE.write(plain, LeaderRecord("me"))
    assert plain["metadata"] == {"annotations": {"a": "b"}}
    assert plain["spec"] == {
        "strategy": "x",
        "holderIdentity": "me",
        "leaseDurationSeconds": 0,
        "acquireTime": None,
        "renewTime": None,
        "leaseTransitions": 0,
    }
