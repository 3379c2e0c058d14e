"""Single objects at an API server, and locks among them: what is asked, and what is read."""

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


class Longest(random.Random):
    def uniform(self, _: float, most: float) -> float:
        return most


# -- objects -----------------------------------------------------------------------------------------------------------


class Scripted:
    """A client whose answers a test gives by "METHOD path", errors among them; each asked for is taken off. What is left is given again."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers, self.asked = answers, list[str]()

    async def call(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: bytes | None = None, sent: str = ""
    ) -> bytes:
        told = " ".join(f"{k}={v}" for k, v in (query or {}).items())
        self.asked.append(f"{method} {path} {told} {body.decode() if body else ''} {sent if body else ''}".strip())
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
APPLIED = "application/apply-patch+yaml"


def objects(client: Scripted, dry_run: bool = False) -> ObjectClient:
    return ObjectClient(client, "me", Longest(), dry_run)  # type: ignore[arg-type]


def test_keys_are_what_objects_say() -> None:
    assert resource_key({"apiVersion": "v1", "kind": "Map", "metadata": {"namespace": "a", "name": "m"}}) == MAP
    assert resource_key({"apiVersion": "x.io/v2", "kind": "Rule", "metadata": {"namespace": None, "name": "r"}}) == RULE
    assert (str(MAP), str(RULE)) == ("Map a/m", "Rule r")


@pytest.mark.parametrize(("dry_run", "dry"), [(False, ""), (True, " dryRun=All")])
async def test_objects_are_written(dry_run: bool, dry: str) -> None:
    client = Scripted(GET=[RESOURCES], PATCH=[{"found": 1}], DELETE=[{}])
    them = objects(client, dry_run)
    plain = {"apiVersion": "v1", "kind": "Map", "metadata": {"namespace": "a", "name": "m"}}
    assert await them.apply(plain) == {"found": 1}
    assert await them.patch(RULE, {"b": 2}, "status") == {"found": 1}
    assert await them.patch(RULE, {"b": 2}) == {"found": 1}
    assert await them.delete(MAP) is True
    options = '{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Foreground"}'
    written = json.dumps(plain, separators=(",", ":"))
    assert client.asked == [
        "GET /api/v1",
        f"PATCH /api/v1/namespaces/a/maps/m fieldManager=me force=true{dry} {written} {APPLIED}",
        "GET /apis/x.io/v2",
        f'PATCH /apis/x.io/v2/rules/r/status fieldManager=me{dry} {{"b":2}} application/merge-patch+json',
        f'PATCH /apis/x.io/v2/rules/r fieldManager=me{dry} {{"b":2}} application/merge-patch+json',
        f"DELETE /api/v1/namespaces/a/maps/m {dry.strip()} {options} application/json",
    ]


async def test_objects_are_read() -> None:
    pages = [
        {"metadata": {"continue": "next"}, "items": [{"a": 1}]},
        {"metadata": {}, "items": [{"kind": "Own"}]},
        {"items": None},
    ]
    client = Scripted(GET=[RESOURCES, {"gitVersion": "v1.2"}, {"m": 1}, *pages])
    them = objects(client)
    assert await them.collection(MAP.kind) == "/api/v1/maps"
    assert await them.collection(MAP.kind, "b") == "/api/v1/namespaces/b/maps"
    assert await them.version() == "v1.2"
    assert await them.get(MAP) == {"m": 1}
    map_ = {"apiVersion": "v1", "kind": "Map"}
    assert await them.list(MAP.kind, "l=1", "a", "f=2") == [{**map_, "a": 1}, {**map_, "kind": "Own"}]
    assert await them.list(MAP.kind) == []
    query = "limit=500 labelSelector=l=1 fieldSelector=f=2"
    assert client.asked[1:] == [
        "GET /version",
        "GET /api/v1/namespaces/a/maps/m",
        f"GET /api/v1/namespaces/a/maps {query}",
        f"GET /api/v1/namespaces/a/maps {query} continue=next",
        "GET /api/v1/maps limit=500",
    ]


async def test_what_is_not_there() -> None:
    missing = NotFound(404, "NotFound", "")
    client = Scripted(GET=[RESOURCES, missing], DELETE=[missing])
    them = objects(client)
    assert (await them.get(MAP), await them.delete(MAP)) == (None, False)
    other = ResourceKey(VersionedKind("v1", "Other"), "a", "o")
    assert (await them.get(other), await them.list(other.kind), await them.delete(other)) == (None, [], False)
    with pytest.raises(UnknownKind, match=r"^the API server has no Other in v1$"):
        await them.patch(other, {})
    assert [asked for asked in client.asked if asked == "GET /api/v1"] == ["GET /api/v1"] * 5, "it may be there by now"


@pytest.mark.parametrize(
    ("errors", "waits", "fails"),
    [
        ([ApiError(code, "x", "") for code in (429, 500, 502, 503)], [0.2, 0.4, 0.8, 1.6], False),
        ([ApiError(504, "x", "", 3.0), Unreachable("x")], [3.0, 0.4], False),
        ([Unreachable("x")] * 5, [0.2, 0.4, 0.8, 1.6], True),
        ([ApiError(501, "x", "")], [], True),
        ([ApiError(430, "x", "")], [], True),
        ([ApiError(505, "x", "")], [], True),
    ],
)
async def test_what_fails_in_passing_is_asked_again(
    errors: list[Exception], waits: list[float], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))

    monkeypatch.setattr(objects_module, "asyncio", types.SimpleNamespace(sleep=sleep))
    them = objects(Scripted(GET=[*errors, {"gitVersion": "v1"}]))
    with pytest.raises(type(errors[-1])) if fails else contextlib.nullcontext():
        assert await them.version() == "v1"
    assert slept == waits


# -- locks -------------------------------------------------------------------------------------------------------------

RECORD = LeaderRecord("me", "key", 30, "t1", "t2", 4)
ANNOTATED = {
    LEADER_ANNOTATION: '{"holderIdentity":"me","holderKey":"key","leaseDurationSeconds":30,"acquireTime":"t1","renewTime":"t2","leaderTransitions":4}'
}
NAMED = {"name": "l", "namespace": "n"}
SPEC = {
    "holderIdentity": "me",
    "leaseDurationSeconds": 30,
    "acquireTime": "t1",
    "renewTime": "t2",
    "leaseTransitions": 4,
}


@pytest.mark.parametrize(
    ("form", "written", "path"),
    [
        (
            LEASE,
            {"metadata": {**NAMED, "annotations": {HOLDER_KEY_ANNOTATION: "key"}}, "spec": SPEC},
            "/apis/coordination.k8s.io/v1/namespaces/n/leases",
        ),
        (CONFIG_MAP, {"metadata": {**NAMED, "annotations": ANNOTATED}}, "/api/v1/namespaces/n/configmaps"),
    ],
)
async def test_a_lock_is_made_and_read(form: LockKind, written: Plain, path: str) -> None:
    whole = {"apiVersion": form.api, "kind": form.kind, **written}
    kept = {**whole, "metadata": {**written["metadata"], "resourceVersion": "7"}}
    client = Scripted(
        POST=[kept, Conflict(409, "x", "")], GET=[kept, NotFound(404, "x", "")], PUT=[kept, Conflict(409, "x", "")]
    )
    lock = Lock(client, form, "n", "l")  # type: ignore[arg-type]
    held = await lock.write(RECORD, None)
    assert held is not None
    assert (held.record, held.version, lock.name) == (RECORD, "7", "l")
    assert await lock.read() == held
    assert await lock.write(RECORD, held) == held
    assert [await lock.write(RECORD, None), await lock.write(RECORD, held), await lock.read()] == [None, None, None]
    asked = [one.partition(" {") for one in client.asked]
    assert [one[0].strip() for one in asked] == [
        f"POST {path}",
        f"GET {path}/l",
        f"PUT {path}/l",
        f"POST {path}",
        f"PUT {path}/l",
        f"GET {path}/l",
    ]
    assert [json.loads("{" + asked[n][2]) for n in (0, 2)] == [whole, kept]


@pytest.mark.parametrize(
    ("form", "plain", "found"),
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
        (LEASE, {"metadata": {"annotations": {HOLDER_KEY_ANNOTATION: "key"}}, "spec": SPEC}, RECORD),
        (CONFIG_MAP, {"metadata": {}}, LeaderRecord()),
        (CONFIG_MAP, {"metadata": {"annotations": {LEADER_ANNOTATION: "nonsense"}}}, LeaderRecord()),
        (CONFIG_MAP, {"metadata": {"annotations": ANNOTATED}}, RECORD),
    ],
)
def test_who_holds_a_lock(form: LockKind, plain: Plain, found: LeaderRecord) -> None:
    assert form.read(plain) == found


def test_what_else_stands_in_a_lease_stays_and_a_key_that_is_gone_goes() -> None:
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
