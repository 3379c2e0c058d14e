"""Root certificates in webhook configurations."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.controllers.ca_bundles import MUTATING, VALIDATING, CaBundleController
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.definitions import definition
from testing.apiserver.resource import ADMISSION
from testing.apiserver.server import ApiServer
from testing.apiserver.status_error import StatusError
from testing.kube.kube_access import client_of, until, watch_options
from tests.unit.ingest.test_kube_source import GATEWAY


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


def configuration(
    kind: str, name: str, revision: str, *webhooks: str, bundle: str = "", policy: str = "Fail"
) -> dict[str, Any]:
    entries = [
        {"name": webhook, "clientConfig": {"url": "https://x", "caBundle": bundle}, "failurePolicy": policy}
        for webhook in webhooks
    ]
    metadata = {"name": name, "labels": {"istio.io/rev": revision}}
    return {
        "apiVersion": f"{ADMISSION}/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": metadata,
        "webhooks": entries,
    }


class Harness:
    def __init__(self, server: ApiServer, revision: str = "") -> None:
        self.server, self.roots, self.client = server, "one", client_of(server)
        self.metrics, kinds = Metrics(), (MUTATING, VALIDATING)
        metrics = self.metrics.kubernetes
        self.writer = CaBundleController(
            self.client, revision, "istio-system", lambda: self.roots, kinds, watch_options(), random.Random(1), metrics
        )

    def bundles(self, kind: str, name: str) -> list[str]:
        configuration = self.server.get(ADMISSION, f"{kind}webhookconfigurations", "", name)
        return (
            [
                base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()
                for webhook in configuration["webhooks"]
            ]
            if configuration is not None
            else []
        )

    def policies(self, name: str) -> list[str]:
        configuration = self.server.get(ADMISSION, "validatingwebhookconfigurations", "", name)
        return [webhook["failurePolicy"] for webhook in configuration["webhooks"]] if configuration is not None else []


@contextlib.asynccontextmanager
async def run_controller(harness: Harness) -> AsyncIterator[Harness]:
    task = asyncio.create_task(harness.writer.run())
    yield harness
    await cancel_tasks(task)
    await harness.client.close()


async def test_webhooks_of_the_revision_receive_and_keep_the_roots(server: ApiServer) -> None:
    injector = "rev.namespace.sidecar-injector.istio.io"
    server.put(configuration("Mutating", "ours", "default", injector, "other.io", bundle="b2xk"))
    server.put(configuration("Mutating", "istio-revision-tag-prod", "default", injector))
    server.put(configuration("Mutating", "theirs", "canary", injector, bundle="b2xk"))
    async with run_controller(Harness(server)) as harness:
        await until(lambda: harness.bundles("mutating", "ours") == ["one", "old"])
        await until(lambda: harness.bundles("mutating", "istio-revision-tag-prod") == ["one"])
        server.put(configuration("Mutating", "ours", "default", "first.io", injector, bundle="b2xk"))
        await until(lambda: harness.bundles("mutating", "ours") == ["old", "one"])
        harness.roots = "two"
        harness.writer.resync()
        await until(lambda: harness.bundles("mutating", "ours") == ["old", "two"])
        assert harness.bundles("mutating", "theirs") == ["old"]
        server.delete(configuration("Mutating", "ours", "default"))
        server.put(configuration("Validating", "late", "default", "validation.istio.io"))
        await until(lambda: harness.bundles("validating", "late") == ["two"])


async def test_validating_webhook_fails_closed_once_it_denies(server: ApiServer) -> None:
    is_denied = False

    async def admit(request: Any, old: Any, new: Any) -> Any:
        if is_denied and request.name == "invalid-gateway":
            raise StatusError(400, 'admission webhook "validation.istio.io" denied the request: it is wrong')
        return new

    server.put(definition(GATEWAY))
    server.writes._admission.append(admit)
    server.put(configuration("Validating", "ours", "canary", "validation.istio.io", policy="Ignore"))
    async with run_controller(Harness(server, "canary")) as harness:
        await until(lambda: harness.bundles("validating", "ours") == ["one"])
        await until(lambda: any(request.name == "" and request.dry_run for request in server.requests))
        assert harness.policies("ours") == ["Ignore"]
        is_denied = True
        await until(lambda: harness.policies("ours") == ["Fail"])
        assert server.get("networking.istio.io", "gateways", "istio-system", "invalid-gateway") is None


async def test_webhook_fails_closed_without_the_gateway_kind(server: ApiServer) -> None:
    server.put(configuration("Validating", "ours", "default", "validation.istio.io", policy="Ignore"))
    async with run_controller(Harness(server)) as harness:
        await until(lambda: harness.policies("ours") == ["Fail"])


async def test_configuration_deleted_during_a_write_is_no_error(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    injector = "sidecar-injector.istio.io"

    async def refuse_patch(request: Any, old: Any, new: Any) -> Any:
        if request.name == "goes" and request.verb == "patch":
            raise StatusError(404, "it has gone")
        return new

    server.writes._admission.append(refuse_patch)
    for name in ("goes", "stays"):
        server.put(configuration("Mutating", name, "default", injector))
    async with run_controller(Harness(server)) as harness:
        await until(lambda: harness.bundles("mutating", "stays") == ["one"])
        harness.roots = "two"
        harness.writer.resync()
        await until(lambda: harness.bundles("mutating", "stays") == ["two"])
        assert harness.bundles("mutating", "goes") == [""]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_validation_updates_are_counted(server: ApiServer) -> None:
    server.put(configuration("Mutating", "one", "default", "sidecar-injector.istio.io"))
    server.put(configuration("Validating", "two", "default", "validation.istio.io"))
    async with run_controller(Harness(server)) as harness:
        await until(
            lambda: (
                (harness.bundles("mutating", "one"), harness.bundles("validating", "two"), harness.policies("two"))
                == (["one"], ["one"], ["Fail"])
            )
        )

        def validation_metrics() -> list[str]:
            return [
                line
                for line in harness.metrics.exposition().decode().splitlines()
                if line.startswith("galley_validation_config")
            ]

        await until(lambda: validation_metrics() == ["galley_validation_config_updates 1"])
        server.delete(configuration("Mutating", "one", "default"))
        harness.roots = "next"
        harness.writer.resync()
        await until(lambda: harness.bundles("validating", "two") == ["next"])
        await until(lambda: validation_metrics() == ["galley_validation_config_updates 2"])


async def test_deleted_configuration_is_not_written_again(server: ApiServer) -> None:
    injector = "sidecar-injector.istio.io"
    server.put(configuration("Mutating", "gone", "default", injector))
    server.put(configuration("Mutating", "stays", "default", injector))
    async with run_controller(Harness(server)) as harness:
        await until(lambda: harness.bundles("mutating", "gone") == harness.bundles("mutating", "stays") == ["one"])
        server.delete(configuration("Mutating", "gone", "default"))
        server.put(configuration("Mutating", "late", "default", injector))
        await until(lambda: harness.bundles("mutating", "late") == ["one"])
        harness.roots = "two"
        harness.writer.resync()
        await until(lambda: harness.bundles("mutating", "late") == harness.bundles("mutating", "stays") == ["two"])
        assert [request.name for request in server.requests if request.verb == "patch"].count("gone") == 1
        samples = [
            line
            for line in harness.metrics.exposition().decode().splitlines()
            if "webhook" in line and not line.startswith("#")
        ]
        assert samples == ['webhook_patch_attempts_total{name="sidecar-injector.istio.io"} 5']
