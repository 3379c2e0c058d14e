"""Webhook configurations have the roots of the control plane, whoever overwrites them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.controllers.ca_bundles import MUTATING, VALIDATING, CaBundleController
from pilot.lib.metrics import Metrics
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.definitions import definition
from testing.apiserver.resource import ADMISSION
from testing.apiserver.server import ApiServer
from testing.apiserver.status_error import StatusError
from testing.kube.kube_access import client_of, until, watch_options
from tests.unit.ingest.test_kube_source import GATEWAY


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


def configuration(
    kind: str, name: str, revision: str, *webhooks: str, bundle: str = "", policy: str = "Fail"
) -> dict[str, Any]:
    entries = [
        {"name": each, "clientConfig": {"url": "https://x", "caBundle": bundle}, "failurePolicy": policy}
        for each in webhooks
    ]
    metadata = {"name": name, "labels": {"istio.io/rev": revision}}
    return {
        "apiVersion": f"{ADMISSION}/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": metadata,
        "webhooks": entries,
    }


class Writing:
    def __init__(self, server: ApiServer, revision: str = "") -> None:
        self.server, self.roots, self.client = server, "one", client_of(server)
        self.metrics, kinds = Metrics(), (MUTATING, VALIDATING)
        counts = self.metrics.kubernetes
        self.writer = CaBundleController(
            self.client, revision, "istio-system", lambda: self.roots, kinds, watch_options(), random.Random(1), counts
        )

    def bundles(self, kind: str, name: str) -> list[str]:
        found = self.server.get(ADMISSION, f"{kind}webhookconfigurations", "", name)
        return (
            [base64.b64decode(w["clientConfig"].get("caBundle", "")).decode() for w in found["webhooks"]]
            if found is not None
            else []
        )

    def policies(self, name: str) -> list[str]:
        found = self.server.get(ADMISSION, "validatingwebhookconfigurations", "", name)
        return [w["failurePolicy"] for w in found["webhooks"]] if found is not None else []


@contextlib.asynccontextmanager
async def writing(it: Writing) -> AsyncIterator[Writing]:
    task = asyncio.create_task(it.writer.run())
    yield it
    await cancel_tasks(task)
    await it.client.close()


async def test_those_of_the_revision_have_the_roots_and_keep_them(server: ApiServer) -> None:
    injector = "rev.namespace.sidecar-injector.istio.io"
    server.put(configuration("Mutating", "ours", "default", injector, "other.io", bundle="b2xk"))
    server.put(configuration("Mutating", "istio-revision-tag-prod", "default", injector))
    server.put(configuration("Mutating", "theirs", "canary", injector, bundle="b2xk"))
    async with writing(Writing(server)) as it:
        await until(lambda: it.bundles("mutating", "ours") == ["one", "old"])
        await until(lambda: it.bundles("mutating", "istio-revision-tag-prod") == ["one"])
        server.put(configuration("Mutating", "ours", "default", "first.io", injector, bundle="b2xk"))
        await until(lambda: it.bundles("mutating", "ours") == ["old", "one"])
        it.roots = "two"
        it.writer.resync()
        await until(lambda: it.bundles("mutating", "ours") == ["old", "two"])
        assert it.bundles("mutating", "theirs") == ["old"]
        server.delete(configuration("Mutating", "ours", "default"))
        server.put(configuration("Validating", "late", "default", "validation.istio.io"))
        await until(lambda: it.bundles("validating", "late") == ["two"])


async def test_a_validating_webhook_fails_closed_once_it_denies(server: ApiServer) -> None:
    denies = False

    async def admit(asked: Any, old: Any, new: Any) -> Any:
        if denies and asked.name == "invalid-gateway":
            raise StatusError(400, 'admission webhook "validation.istio.io" denied the request: it is wrong')
        return new

    server.put(definition(GATEWAY))
    server.writes._admission.append(admit)
    server.put(configuration("Validating", "ours", "canary", "validation.istio.io", policy="Ignore"))
    async with writing(Writing(server, "canary")) as it:
        await until(lambda: it.bundles("validating", "ours") == ["one"])
        await until(lambda: any(asked.name == "" and asked.dry_run for asked in server.requests))
        assert it.policies("ours") == ["Ignore"]
        denies = True
        await until(lambda: it.policies("ours") == ["Fail"])
        assert server.get("networking.istio.io", "gateways", "istio-system", "invalid-gateway") is None


async def test_without_gateways_there_is_nothing_to_deny(server: ApiServer) -> None:
    server.put(configuration("Validating", "ours", "default", "validation.istio.io", policy="Ignore"))
    async with writing(Writing(server)) as it:
        await until(lambda: it.policies("ours") == ["Fail"])


async def test_a_configuration_that_goes_while_it_is_written_ends_nothing(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    injector = "sidecar-injector.istio.io"

    async def goes(asked: Any, old: Any, new: Any) -> Any:
        if asked.name == "goes" and asked.verb == "patch":
            raise StatusError(404, "it has gone")
        return new

    server.writes._admission.append(goes)
    for name in ("goes", "stays"):
        server.put(configuration("Mutating", name, "default", injector))
    async with writing(Writing(server)) as it:
        await until(lambda: it.bundles("mutating", "stays") == ["one"])
        it.roots = "two"
        it.writer.resync()
        await until(lambda: it.bundles("mutating", "stays") == ["two"])
        assert it.bundles("mutating", "goes") == [""]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_what_is_written_of_validation_is_counted(server: ApiServer) -> None:
    server.put(configuration("Mutating", "one", "default", "sidecar-injector.istio.io"))
    server.put(configuration("Validating", "two", "default", "validation.istio.io"))
    async with writing(Writing(server)) as it:
        await until(
            lambda: (
                (it.bundles("mutating", "one"), it.bundles("validating", "two"), it.policies("two"))
                == (["one"], ["one"], ["Fail"])
            )
        )

        def counted() -> list[str]:
            return [
                line
                for line in it.metrics.exposition().decode().splitlines()
                if line.startswith("galley_validation_config")
            ]

        await until(lambda: counted() == ["galley_validation_config_updates 1"])
        server.delete(configuration("Mutating", "one", "default"))
        it.roots = "next"
        it.writer.resync()
        await until(lambda: it.bundles("validating", "two") == ["next"])
        await until(lambda: counted() == ["galley_validation_config_updates 2"])


async def test_a_configuration_that_has_gone_is_not_written_to_again(server: ApiServer) -> None:
    injector = "sidecar-injector.istio.io"
    server.put(configuration("Mutating", "gone", "default", injector))
    server.put(configuration("Mutating", "stays", "default", injector))
    async with writing(Writing(server)) as it:
        await until(lambda: it.bundles("mutating", "gone") == it.bundles("mutating", "stays") == ["one"])
        server.delete(configuration("Mutating", "gone", "default"))
        server.put(configuration("Mutating", "late", "default", injector))
        await until(lambda: it.bundles("mutating", "late") == ["one"])
        it.roots = "two"
        it.writer.resync()
        await until(lambda: it.bundles("mutating", "late") == it.bundles("mutating", "stays") == ["two"])
        assert [asked.name for asked in server.requests if asked.verb == "patch"].count("gone") == 1
        counted = [
            line
            for line in it.metrics.exposition().decode().splitlines()
            if "webhook" in line and not line.startswith("#")
        ]
        assert counted == ['webhook_patch_attempts_total{name="sidecar-injector.istio.io"} 5']
