"""Key sets: fetching, retention over failures and restarts, expiry and reporting."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Callable

import pytest

from pilot.config.problem import Problem
from pilot.config.security.request_authentication import JwksKey
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.jwks import key_sets
from pilot.ingest.jwks.client import KeySetError
from pilot.ingest.jwks.key_sets import MAX_AGE_SECONDS, KeySets
from pilot.ingest.jwks.store import KeyStore
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import Duration, parse_duration
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock
from testing.mesh.objects import make
from testing.mesh.world import rows_of

LARGEST = 10_000
URI = "https://issuer.example.com/keys"
KEY, DISCOVERED = JwksKey("", URI), JwksKey("https://issuer.example.com", "")


def keys(kid: str) -> str:
    return json.dumps({"keys": [{"kty": "RSA", "kid": kid, "n": "AQAB", "e": "AQAB"}]})


def policy(name: str, rule: str) -> dict[str, object]:
    return make("RequestAuthentication", name, f"{{jwtRules: [{{{rule}}}]}}")


class FakeClient:
    """Client that returns or raises the configured answers. `requests` lists keys and timeouts."""

    def __init__(self) -> None:
        self.answers: dict[JwksKey, str | Exception] = {}
        self.requests: list[tuple[JwksKey, float]] = []
        self.closed = False

    async def fetch(self, key: JwksKey, timeout: float) -> str:
        self.requests.append((key, timeout))
        answer = self.answers.get(key, KeySetError("down"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


class JwksMesh:
    """A mesh whose key sets are fetched. `delays` lists the seconds of each sleep; `wake` ends pending sleeps."""

    def __init__(
        self, state: str = "", client: FakeClient | None = None, now: Callable[[], float] = lambda: 1_000_000.0
    ) -> None:
        self.mesh, self.problems, self.client = Mesh(), ProblemStore(lambda _: None), client or FakeClient()
        self.delays: list[float] = []
        self._sleeping = 0
        self._waking = asyncio.Event()
        self.batch = Batch(self.mesh, VirtualClock(), parse_duration("100ms"), parse_duration("10s"), self._committed)
        self.metrics = Metrics()
        self.sets = KeySets(
            self.mesh,
            self.batch,
            self.client,
            KeyStore(state),
            self.problems,
            self.metrics,
            Duration.of(1200),
            LARGEST,
            now=now,
            sleep=self._sleep,
        )

    def _committed(self, commit: Commit) -> None:
        self.sets.reached(commit.hit)

    async def _sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        self._sleeping += 1
        try:
            await self._waking.wait()
        finally:
            self._sleeping -= 1

    async def wake(self) -> None:
        sleeping, self._waking = self._waking, asyncio.Event()
        sleeping.set()
        await self.settle()

    async def settle(self) -> None:
        """Wait until every fetch task sleeps, then commit."""
        await asyncio.sleep(0)
        while self._sleeping != len(self.sets._tasks):
            await asyncio.to_thread(lambda: None)
        self.batch.flush()

    async def apply(self, *objects: dict[str, object]) -> None:
        self.batch.put([(table, key, row) for (table, key), row in rows_of(objects).items()])
        self.batch.flush()
        await self.settle()

    async def remove(self, plain: dict[str, object]) -> None:
        self.batch.put([(table, key, None) for table, key in rows_of([plain])])
        self.batch.flush()
        await self.settle()

    def fetched_keys(self, key: JwksKey = KEY) -> str | None:
        return self.mesh.jwks.peek(key)

    @property
    def reported(self) -> list[Problem]:
        return list(self.problems)


POLICY = policy("one", f"issuer: i, jwksUri: '{URI}'")


async def start(
    *objects: dict[str, object],
    client: FakeClient | None = None,
    state: str = "",
    now: Callable[[], float] = lambda: 1e6,
) -> JwksMesh:
    harness = JwksMesh(state, client, now)
    harness.batch.put([(table, key, row) for (table, key), row in rows_of(objects).items()])
    harness.batch.flush()
    await harness.sets.start()
    await harness.settle()
    return harness


def fake_client(**answers: str) -> FakeClient:
    client = FakeClient()
    client.answers = {KEY: keys("one"), **{JwksKey("", uri): text for uri, text in answers.items()}}
    return client


async def test_start_fetches_keys() -> None:
    harness = await start(POLICY, client=fake_client())
    assert harness.fetched_keys() == keys("one")
    assert harness.delays == [1200]
    assert harness.client.requests == [(KEY, 5.0)]
    await harness.sets.stop()
    assert harness.client.closed


async def test_start_waits_for_pending_fetches() -> None:
    client, requested = fake_client(), asyncio.Event()
    harness = JwksMesh(client=client)
    fetch = client.fetch

    async def slow(key: JwksKey, timeout: float) -> str:
        requested.set()
        for _ in range(20):
            await asyncio.sleep(0)
        return await fetch(key, timeout)

    client.fetch = slow  # type: ignore[method-assign]
    harness.batch.put([(table, key, row) for (table, key), row in rows_of([POLICY]).items()])
    harness.batch.flush()
    await harness.sets.start()
    assert requested.is_set()
    assert harness.fetched_keys() == keys("one")
    await harness.sets.stop()


async def test_policies_with_the_same_url_share_a_fetch_with_the_longest_timeout() -> None:
    harness = await start(POLICY, policy("two", f"issuer: j, jwksUri: '{URI}', timeout: 9s"), client=fake_client())
    assert harness.client.requests == [(KEY, 9.0)]
    await harness.sets.stop()


async def test_discovery_applies_without_a_url_and_not_to_inline_keys() -> None:
    client = FakeClient()
    client.answers = {DISCOVERED: keys("found")}
    harness = await start(
        policy("one", "issuer: 'https://issuer.example.com'"),
        policy("two", f"issuer: x, jwks: '{keys('own')}'"),
        client=client,
    )
    assert harness.fetched_keys(DISCOVERED) == keys("found")
    assert [key for key, _ in client.requests] == [DISCOVERED]
    await harness.sets.stop()


async def test_cve_2026_31837_failed_fetch_is_reported_and_leaves_no_keys() -> None:
    harness = await start(POLICY)
    assert harness.fetched_keys() is None
    (problem,) = harness.reported
    assert (problem.code, problem.object.name, problem.path) == ("keys-not-fetched", "one", "spec.jwtRules")
    assert "down" in problem.message
    assert "rejected" in problem.message
    await harness.sets.stop()


async def test_failed_fetch_is_retried_with_backoff() -> None:
    harness = await start(POLICY)
    for _ in range(8):
        await harness.wake()
    assert harness.delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    harness.client.answers[KEY] = keys("late")
    await harness.wake()
    assert harness.fetched_keys() == keys("late")
    assert harness.reported == []
    assert harness.delays[-1] == 1200
    await harness.sets.stop()


async def test_last_fetched_keys_are_kept_while_the_server_is_down() -> None:
    harness = await start(POLICY, client=fake_client())
    harness.client.answers[KEY] = KeySetError("status 503")
    await harness.wake()
    assert harness.fetched_keys() == keys("one")
    assert "last fetched keys" in harness.reported[0].message
    harness.client.answers[KEY] = keys("two")
    await harness.wake()
    assert harness.fetched_keys() == keys("two")
    await harness.sets.stop()


async def test_last_fetched_keys_survive_a_restart(tmp_path: pathlib.Path) -> None:
    harness = await start(POLICY, client=fake_client(), state=str(tmp_path))
    await harness.sets.stop()
    restarted = await start(POLICY, state=str(tmp_path))
    assert restarted.fetched_keys() == keys("one")
    assert "last fetched keys" in restarted.reported[0].message
    await restarted.sets.stop()


async def test_keys_expire_at_the_maximum_age(tmp_path: pathlib.Path) -> None:
    now = [1e6]
    harness = await start(POLICY, client=fake_client(), state=str(tmp_path), now=lambda: now[0])
    harness.client.answers[KEY] = KeySetError("down")
    now[0] += MAX_AGE_SECONDS - 1
    await harness.wake()
    assert harness.fetched_keys() == keys("one")
    now[0] += 1
    await harness.wake()
    assert harness.fetched_keys() is None
    await harness.sets.stop()
    restarted = await start(POLICY, state=str(tmp_path), now=lambda: now[0])
    assert restarted.fetched_keys() is None
    await restarted.sets.stop()


async def test_expired_stored_keys_are_not_used_after_a_restart(tmp_path: pathlib.Path) -> None:
    await (await start(POLICY, client=fake_client(), state=str(tmp_path))).sets.stop()
    restarted = await start(POLICY, state=str(tmp_path), now=lambda: 1e6 + MAX_AGE_SECONDS)
    assert restarted.fetched_keys() is None
    await restarted.sets.stop()


@pytest.mark.parametrize("data", [b"", b"{}", b'{"issuer": "", "uri": "x", "keys": "no", "fetched": 1}'])
async def test_invalid_stored_file_is_ignored(tmp_path: pathlib.Path, data: bytes) -> None:
    (tmp_path / "jwks").mkdir()
    (tmp_path / "jwks" / "a.json").write_bytes(data)
    harness = await start(POLICY, client=fake_client(), state=str(tmp_path))
    assert harness.fetched_keys() == keys("one")
    await harness.sets.stop()


async def test_stored_keys_are_readable_only_by_the_owner(tmp_path: pathlib.Path) -> None:
    await (await start(POLICY, client=fake_client(), state=str(tmp_path))).sets.stop()
    (file,) = (tmp_path / "jwks").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_unreferenced_keys_are_removed(tmp_path: pathlib.Path) -> None:
    harness = await start(POLICY, client=fake_client(), state=str(tmp_path))
    await harness.remove(POLICY)
    assert harness.fetched_keys() is None
    assert list((tmp_path / "jwks").iterdir()) == []
    request_count = len(harness.client.requests)
    await harness.wake()
    assert len(harness.client.requests) == request_count
    await harness.sets.stop()


async def test_keys_referenced_again_are_fetched_again() -> None:
    harness = await start(POLICY, client=fake_client())
    await harness.remove(POLICY)
    harness.client.answers[KEY] = keys("two")
    await harness.apply(POLICY)
    assert harness.fetched_keys() == keys("two")
    assert len(harness.client.requests) == 2
    await harness.remove(POLICY)
    assert harness.fetched_keys() is None
    await harness.sets.stop()


async def test_keys_of_a_later_policy_are_fetched() -> None:
    harness = await start(client=fake_client())
    assert harness.client.requests == []
    await harness.apply(POLICY)
    assert harness.fetched_keys() == keys("one")
    await harness.sets.stop()


async def test_policy_edit_with_the_same_url_does_not_fetch() -> None:
    harness = await start(POLICY, client=fake_client())
    await harness.apply(policy("one", f"issuer: other, jwksUri: '{URI}'"))
    assert len(harness.client.requests) == 1
    await harness.sets.stop()


async def test_unchanged_keys_commit_nothing() -> None:
    harness = await start(POLICY, client=fake_client())
    await harness.wake()
    assert len(harness.client.requests) == 2
    assert len(harness.batch) == 0
    await harness.sets.stop()


async def test_internal_error_is_retried() -> None:
    client = FakeClient()
    client.answers = {KEY: RuntimeError("bug")}
    harness = await start(POLICY, client=client)
    assert harness.fetched_keys() is None
    assert "bug" not in harness.reported[0].message
    client.answers[KEY] = keys("one")
    await harness.wake()
    assert harness.fetched_keys() == keys("one")
    await harness.sets.stop()


async def test_fetch_metrics() -> None:
    harness = await start(POLICY, client=fake_client())
    harness.client.answers[KEY] = KeySetError("down")
    await harness.wake()
    await harness.wake()
    text = harness.metrics.exposition().decode()
    assert "pilot_jwks_resolver_network_fetch_success_total 1\n" in text
    assert "pilot_jwks_resolver_network_fetch_fail_total 2\n" in text
    await harness.sets.stop()


# -- shares of namespaces ----------------------------------------------------------------------------------------------


def in_namespace(namespace: str, count: int, host: str = "slow.example.com") -> dict[str, object]:
    """Return a policy whose rules refer to different key sets."""
    rules = ", ".join(f"{{issuer: i{n}, jwksUri: 'https://{host}/{namespace}/{n}'}}" for n in range(count))
    return make("RequestAuthentication", namespace, f"{{jwtRules: [{rules}]}}", namespace)


class SlowClient(FakeClient):
    """Client whose servers at slow.example.com never respond."""

    async def fetch(self, key: JwksKey, timeout: float) -> str:
        self.requests.append((key, timeout))
        if "slow.example.com" in key.uri:
            await asyncio.Event().wait()
        return self.answers[key]  # type: ignore[return-value]


async def begin(client: FakeClient, *objects: dict[str, object]) -> JwksMesh:
    """Start fetching, and return as soon as every task waits."""
    harness = JwksMesh(client=client)
    harness.batch.put([(table, key, row) for (table, key), row in rows_of(objects).items()])
    harness.batch.flush()
    starting = asyncio.create_task(harness.sets.start())
    for _ in range(50):
        await asyncio.to_thread(lambda: None)
    starting.cancel()
    harness.batch.flush()
    return harness


async def test_dripping_servers_of_a_namespace_leave_slots_for_other_namespaces() -> None:
    client = SlowClient()
    client.answers[KEY] = keys("one")
    harness = await begin(client, in_namespace("attack", 100), POLICY)
    assert harness.fetched_keys() == keys("one")
    assert len([key for key, _ in client.requests if "/attack/" in key.uri]) == 8
    await harness.sets.stop()


async def test_dripping_servers_do_not_delay_a_key_set_to_which_their_namespace_also_refers() -> None:
    client = SlowClient()
    client.answers[KEY] = keys("one")
    shared = make("RequestAuthentication", "a", f"{{jwtRules: [{{issuer: i, jwksUri: '{URI}'}}]}}", "a-attack")
    harness = await begin(client, in_namespace("a-attack", 100), shared, POLICY)
    assert harness.fetched_keys() == keys("one")
    await harness.sets.stop()


async def test_timeout_of_a_day_is_shortened() -> None:
    harness = await start(policy("one", f"issuer: i, jwksUri: '{URI}', timeout: 24h"), client=fake_client())
    assert harness.client.requests == [(KEY, 30.0)]
    await harness.sets.stop()


async def test_many_large_key_sets_of_a_namespace_exceed_its_share_and_not_those_of_others() -> None:
    client = FakeClient()
    client.answers = {JwksKey("", f"https://x.example.com/attack/{n}"): keys("x" * 9_000) for n in range(40)}
    client.answers[KEY] = keys("one")
    harness = await start(in_namespace("attack", 40, "x.example.com"), POLICY, client=client)
    sizes = [len(harness.fetched_keys(key) or "") for key in client.answers if key != KEY]
    assert 100_000 < sum(sizes) <= 16 * LARGEST
    assert harness.fetched_keys() == keys("one")
    failed = [problem for problem in harness.reported if "exceed 160000 bytes" in problem.message]
    assert len(failed) == sizes.count(0)
    assert {problem.object.name for problem in failed} == {"attack"}
    await harness.sets.stop()


async def test_last_fetched_keys_stay_in_force_when_new_ones_exceed_the_share() -> None:
    harness = await start(POLICY, client=fake_client())
    harness.client.answers[KEY] = keys("x" * 16 * LARGEST)
    await harness.wake()
    assert harness.fetched_keys() == keys("one")
    await harness.sets.stop()


async def test_thousands_of_key_sets_of_a_namespace_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "MOST_IN_NAMESPACE", 10)
    client = FakeClient()
    client.answers[KEY] = keys("one")
    client.answers |= {JwksKey("", f"https://x.example.com/attack/{n}"): keys(str(n)) for n in range(10, 30)}
    first = make(
        "RequestAuthentication", "z", "{jwtRules: [{issuer: i, jwksUri: 'https://x.example.com/z'}]}", "attack"
    )
    harness = await start(first, POLICY, client=client)
    await harness.apply(in_namespace("attack", 30, "x.example.com"))
    requested = {key.uri for key, _ in client.requests}
    assert (URI in requested, "https://x.example.com/z" in requested, len(requested)) == (True, True, 11)
    excess = [problem for problem in harness.reported if "more than 10 key sets" in problem.message]
    assert [(problem.object.namespace, problem.object.name, problem.path) for problem in excess] == [
        ("attack", "attack", "spec.jwtRules")
    ]
    await harness.remove(in_namespace("attack", 30, "x.example.com"))
    assert not any("more than 10 key sets" in problem.message for problem in harness.reported)
    await harness.sets.stop()
