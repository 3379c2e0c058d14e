"""Key sets are followed: fetched, kept over failures and restarts, given up when they are old, and told of."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Callable

import pytest

from pilot.config.problem import Problem
from pilot.config.security.request_authentication import JwksKey
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.jwks.client import KeySetError
from pilot.ingest.jwks.key_sets import MAX_AGE_SECONDS, KeySets
from pilot.ingest.jwks.store import KeyStore
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import Duration, parse_duration
from pilot.lib.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from testing.mesh.clock import VirtualClock
from testing.mesh.objects import make
from testing.mesh.world import rows_of

URI = "https://issuer.example.com/keys"
KEY, DISCOVERED = JwksKey("", URI), JwksKey("https://issuer.example.com", "")


def keys(kid: str) -> str:
    return json.dumps({"keys": [{"kty": "RSA", "kid": kid, "n": "AQAB", "e": "AQAB"}]})


def policy(name: str, rule: str) -> dict[str, object]:
    return make("RequestAuthentication", name, f"{{jwtRules: [{{{rule}}}]}}")


class FakeClient:
    """Answers with a text, or fails with it where it is an error. `asked`: which keys, and in how many seconds."""

    def __init__(self) -> None:
        self.answers: dict[JwksKey, str | Exception] = {}
        self.asked: list[tuple[JwksKey, float]] = []
        self.closed = False

    async def fetch(self, key: JwksKey, timeout: float) -> str:
        self.asked.append((key, timeout))
        answer = self.answers.get(key, KeySetError("down"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


class Mesher:
    """A mesh whose key sets are followed. `slept`: the seconds of each sleep; `wake` ends those that are going on."""

    def __init__(
        self, state: str = "", client: FakeClient | None = None, now: Callable[[], float] = lambda: 1_000_000.0
    ) -> None:
        self.mesh, self.problems, self.client = Mesh(), ProblemStore(lambda _: None), client or FakeClient()
        self.slept: list[float] = []
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
            now=now,
            sleep=self._sleep,
        )

    def _committed(self, commit: Commit) -> None:
        self.sets.reached(commit.hit)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
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
        """Waits until every fetch sleeps, and commits."""
        await asyncio.sleep(0)
        while self._sleeping != len(self.sets._tasks):
            await asyncio.to_thread(lambda: None)
        self.batch.flush()

    async def apply(self, *objects: dict[str, object]) -> None:
        self.batch.put([(table, key, row) for (table, key), row in rows_of(objects).items()])
        self.batch.flush()
        await self.settle()

    async def remove(self, o: dict[str, object]) -> None:
        self.batch.put([(table, key, None) for table, key in rows_of([o])])
        self.batch.flush()
        await self.settle()

    def known(self, key: JwksKey = KEY) -> str | None:
        return self.mesh.jwks.peek(key)

    @property
    def told(self) -> list[Problem]:
        return list(self.problems)


ONE = policy("one", f"issuer: i, jwksUri: '{URI}'")


async def started(
    *objects: dict[str, object],
    client: FakeClient | None = None,
    state: str = "",
    now: Callable[[], float] = lambda: 1e6,
) -> Mesher:
    made = Mesher(state, client, now)
    made.batch.put([(table, key, row) for (table, key), row in rows_of(objects).items()])
    made.batch.flush()
    await made.sets.start()
    await made.settle()
    return made


def answering(**answers: str) -> FakeClient:
    client = FakeClient()
    client.answers = {KEY: keys("one"), **{JwksKey("", uri): text for uri, text in answers.items()}}
    return client


async def test_keys_are_there_when_the_start_is_over() -> None:
    made = await started(ONE, client=answering())
    assert made.known() == keys("one")
    assert made.slept == [1200]
    assert made.client.asked == [(KEY, 5.0)]
    await made.sets.stop()
    assert made.client.closed


async def test_the_start_waits_for_keys_that_are_on_their_way() -> None:
    client, asked = answering(), asyncio.Event()
    made = Mesher(client=client)
    fetch = client.fetch

    async def slow(key: JwksKey, timeout: float) -> str:
        asked.set()
        for _ in range(20):
            await asyncio.sleep(0)
        return await fetch(key, timeout)

    client.fetch = slow  # type: ignore[method-assign]
    made.batch.put([(table, key, row) for (table, key), row in rows_of([ONE]).items()])
    made.batch.flush()
    await made.sets.start()
    assert asked.is_set()
    assert made.known() == keys("one")
    await made.sets.stop()


async def test_policies_that_name_the_same_url_share_a_fetch_with_the_longest_timeout() -> None:
    made = await started(ONE, policy("two", f"issuer: j, jwksUri: '{URI}', timeout: 9s"), client=answering())
    assert made.client.asked == [(KEY, 9.0)]
    await made.sets.stop()


async def test_an_issuer_without_url_is_asked_itself_and_inline_keys_are_not_fetched() -> None:
    client = FakeClient()
    client.answers = {DISCOVERED: keys("found")}
    made = await started(
        policy("one", "issuer: 'https://issuer.example.com'"),
        policy("two", f"issuer: x, jwks: '{keys('own')}'"),
        client=client,
    )
    assert made.known(DISCOVERED) == keys("found")
    assert [key for key, _ in client.asked] == [DISCOVERED]
    await made.sets.stop()


async def test_cve_2026_31837_keys_that_cannot_be_had_are_not_known_and_told_of() -> None:
    made = await started(ONE)
    assert made.known() is None
    (problem,) = made.told
    assert (problem.code, problem.object.name, problem.path) == ("keys-not-fetched", "one", "spec.jwtRules")
    assert "down" in problem.message
    assert "rejected" in problem.message
    await made.sets.stop()


async def test_a_failed_fetch_is_tried_again_soon_and_then_more_seldom() -> None:
    made = await started(ONE)
    for _ in range(8):
        await made.wake()
    assert made.slept == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    made.client.answers[KEY] = keys("late")
    await made.wake()
    assert made.known() == keys("late")
    assert made.told == []
    assert made.slept[-1] == 1200
    await made.sets.stop()


async def test_the_last_good_keys_stay_while_the_server_is_down() -> None:
    made = await started(ONE, client=answering())
    made.client.answers[KEY] = KeySetError("status 503")
    await made.wake()
    assert made.known() == keys("one")
    assert "last fetched keys" in made.told[0].message
    made.client.answers[KEY] = keys("two")
    await made.wake()
    assert made.known() == keys("two")
    await made.sets.stop()


async def test_the_last_good_keys_survive_a_restart(tmp_path: pathlib.Path) -> None:
    made = await started(ONE, client=answering(), state=str(tmp_path))
    await made.sets.stop()
    again = await started(ONE, state=str(tmp_path))
    assert again.known() == keys("one")
    assert "last fetched keys" in again.told[0].message
    await again.sets.stop()


async def test_keys_that_nobody_could_fetch_for_a_week_are_given_up(tmp_path: pathlib.Path) -> None:
    now = [1e6]
    made = await started(ONE, client=answering(), state=str(tmp_path), now=lambda: now[0])
    made.client.answers[KEY] = KeySetError("down")
    now[0] += MAX_AGE_SECONDS - 1
    await made.wake()
    assert made.known() == keys("one")
    now[0] += 1
    await made.wake()
    assert made.known() is None
    await made.sets.stop()
    again = await started(ONE, state=str(tmp_path), now=lambda: now[0])
    assert again.known() is None
    await again.sets.stop()


async def test_kept_keys_that_are_too_old_are_not_used_after_a_restart(tmp_path: pathlib.Path) -> None:
    await (await started(ONE, client=answering(), state=str(tmp_path))).sets.stop()
    again = await started(ONE, state=str(tmp_path), now=lambda: 1e6 + MAX_AGE_SECONDS)
    assert again.known() is None
    await again.sets.stop()


@pytest.mark.parametrize("data", [b"", b"{}", b'{"issuer": "", "uri": "x", "keys": "no", "fetched": 1}'])
async def test_a_kept_file_that_is_wrong_stops_nothing(tmp_path: pathlib.Path, data: bytes) -> None:
    (tmp_path / "jwks").mkdir()
    (tmp_path / "jwks" / "a.json").write_bytes(data)
    made = await started(ONE, client=answering(), state=str(tmp_path))
    assert made.known() == keys("one")
    await made.sets.stop()


async def test_kept_keys_are_for_their_owner_alone(tmp_path: pathlib.Path) -> None:
    await (await started(ONE, client=answering(), state=str(tmp_path))).sets.stop()
    (file,) = (tmp_path / "jwks").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_keys_that_no_policy_names_any_more_go(tmp_path: pathlib.Path) -> None:
    made = await started(ONE, client=answering(), state=str(tmp_path))
    await made.remove(ONE)
    assert made.known() is None
    assert list((tmp_path / "jwks").iterdir()) == []
    asked = len(made.client.asked)
    await made.wake()
    assert len(made.client.asked) == asked
    await made.sets.stop()


async def test_keys_that_a_policy_names_again_are_fetched_again() -> None:
    made = await started(ONE, client=answering())
    await made.remove(ONE)
    made.client.answers[KEY] = keys("two")
    await made.apply(ONE)
    assert made.known() == keys("two")
    assert len(made.client.asked) == 2
    await made.remove(ONE)
    assert made.known() is None
    await made.sets.stop()


async def test_a_policy_that_comes_later_is_followed_from_then_on() -> None:
    made = await started(client=answering())
    assert made.client.asked == []
    await made.apply(ONE)
    assert made.known() == keys("one")
    await made.sets.stop()


async def test_an_edit_that_leaves_the_url_fetches_nothing_again() -> None:
    made = await started(ONE, client=answering())
    await made.apply(policy("one", f"issuer: other, jwksUri: '{URI}'"))
    assert len(made.client.asked) == 1
    await made.sets.stop()


async def test_equal_keys_change_nothing() -> None:
    made = await started(ONE, client=answering())
    await made.wake()
    assert len(made.client.asked) == 2
    assert len(made.batch) == 0
    await made.sets.stop()


async def test_a_bug_of_ours_keeps_nobody_from_trying_again() -> None:
    client = FakeClient()
    client.answers = {KEY: RuntimeError("bug")}
    made = await started(ONE, client=client)
    assert made.known() is None
    assert "bug" not in made.told[0].message
    client.answers[KEY] = keys("one")
    await made.wake()
    assert made.known() == keys("one")
    await made.sets.stop()


async def test_fetches_are_counted() -> None:
    made = await started(ONE, client=answering())
    made.client.answers[KEY] = KeySetError("down")
    await made.wake()
    await made.wake()
    text = made.metrics.exposition().decode()
    assert "pilot_jwks_resolver_network_fetch_success_total 1\n" in text
    assert "pilot_jwks_resolver_network_fetch_fail_total 2\n" in text
    await made.sets.stop()
