"""Priority of revisions in leader elections."""

from __future__ import annotations

import pytest

from pilot.controllers.leader_priority import DEFAULT_TAG, LeaderPriority, outranks_holder
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, make_rng, until, watch_options


@pytest.mark.parametrize(
    ("key", "holder", "default", "expected"),
    [
        ("stable", "canary", "stable", True),
        ("canary", "stable", "stable", False),
        ("stable", "canary", "", False),
        ("stable", "stable", "stable", False),
        ("stable", "", "stable", True),
        ("stable", "^stable", "", True),
        ("^stable", "stable", "", False),
        ("^stable", "^canary", "stable", True),
        ("^stable", "^stable", "stable", False),
    ],
)
def test_outranks_holder(key: str, holder: str, default: str, expected: bool) -> None:
    assert outranks_holder(key, holder, default) is expected


async def test_default_revision_is_watched() -> None:
    server = ApiServer()
    await server.start()
    client = client_of(server)
    priority = LeaderPriority(client, "stable", watch_options(), make_rng(1))
    await priority.start()
    tag = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": DEFAULT_TAG},
    }
    assert not priority.outranks("canary")
    server.put({**tag, "metadata": {"name": DEFAULT_TAG, "labels": {"istio.io/rev": "stable"}}})
    await until(lambda: priority.outranks("canary"))
    server.put({**tag, "metadata": {"name": DEFAULT_TAG, "labels": {"istio.io/rev": "canary"}}})
    await until(lambda: not priority.outranks("canary"))
    server.delete(tag)
    await priority.stop()
    await client.close()
    await server.stop()
