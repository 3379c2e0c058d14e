"""Whatever goes wrong between a control plane and its API servers: afterwards proxies are served what a fresh start serves them."""

from __future__ import annotations

import random

import pytest

from testing.kube.kube_mesh import KubeWorld, Servers, difference, start_fresh

SEQUENCES = 12


@pytest.mark.parametrize("streams", [False, True], ids=["pages", "streams"])
@pytest.mark.parametrize("clusters", [1, 2], ids=["one cluster", "two clusters"])
async def test_after_random_faults_the_served_state_is_that_of_a_fresh_start(
    seed: int, clusters: int, streams: bool
) -> None:
    choose = random.Random(f"{seed}-{clusters}-{streams}")
    servers = Servers(30, 3, clusters, choose)
    await servers.start()
    lives = KubeWorld(servers, streams)
    await lives.start()
    for number in range(SEQUENCES):
        for _ in range(choose.randint(3, 10)):
            servers.edit()
            await servers.disturb()
        await servers.recover()
        await lives.settled()
        fresh = await start_fresh(servers, streams)
        assert lives.rows() == fresh.rows(), f"PYISTIOD_SEED={seed}, sequence {number}"
        assert difference(lives.served(), fresh.served()) == [], f"PYISTIOD_SEED={seed}, sequence {number}"
        await fresh.stop()
    edits = lives.edits
    servers.servers[0].store.compact()
    servers.servers[0].faults.end_watches("expired")
    await lives.settled()
    assert lives.edits == edits, "reading all of it again is no edit"
    await lives.stop()
    await servers.stop()
