"""After faults between a control plane and its API servers, proxies get the configuration of a fresh start."""

from __future__ import annotations

import random

import pytest

from testing.kube.kube_mesh import KubeWorld, Servers, difference, start_fresh

SEQUENCES = 12


@pytest.mark.parametrize("streams", [False, True], ids=["pages", "streams"])
@pytest.mark.parametrize("clusters", [1, 2], ids=["one cluster", "two clusters"])
async def test_state_after_random_faults_equals_a_fresh_start(seed: int, clusters: int, streams: bool) -> None:
    rng = random.Random(f"{seed}-{clusters}-{streams}")
    servers = Servers(30, 3, clusters, rng)
    await servers.start()
    live = KubeWorld(servers, streams)
    await live.start()
    for number in range(SEQUENCES):
        for _ in range(rng.randint(3, 10)):
            servers.edit()
            await servers.inject_fault()
        await servers.recover()
        await live.wait_until_synced()
        reference = await start_fresh(servers, streams)
        assert live.rows() == reference.rows(), f"PYISTIOD_SEED={seed}, sequence {number}"
        assert difference(live.resources(), reference.resources()) == [], f"PYISTIOD_SEED={seed}, sequence {number}"
        await reference.stop()
    edits = live.edits
    servers.servers[0].store.compact()
    servers.servers[0].faults.end_watches("expired")
    await live.wait_until_synced()
    assert live.edits == edits, "a repeated list is no edit"
    await live.stop()
    await servers.stop()
