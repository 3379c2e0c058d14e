"""Which revision's control planes lead, and which wait."""

from __future__ import annotations

import pytest

from pilot.controllers.leader_priority import DEFAULT_TAG, LeaderPriority, outranks_holder
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, make_rng, until, watch_options


@pytest.mark.parametrize(
    ("key", "holder", "default", "wanted"),
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
def test_who_has_precedence(key: str, holder: str, default: str, wanted: bool) -> None:
    assert outranks_holder(key, holder, default) is wanted


async def test_the_default_revision_is_followed() -> None:
    server = ApiServer()
    await server.start()
    client = client_of(server)
    precedence = LeaderPriority(client, "stable", watch_options(), make_rng(1))
    await precedence.start()
    tag = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": DEFAULT_TAG},
    }
    assert not precedence.outranks("canary")
    server.put({**tag, "metadata": {"name": DEFAULT_TAG, "labels": {"istio.io/rev": "stable"}}})
    await until(lambda: precedence.outranks("canary"))
    server.put({**tag, "metadata": {"name": DEFAULT_TAG, "labels": {"istio.io/rev": "canary"}}})
    await until(lambda: not precedence.outranks("canary"))
    server.delete(tag)
    await precedence.stop()
    await client.close()
    await server.stop()
