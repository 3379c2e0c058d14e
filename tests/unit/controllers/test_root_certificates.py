"""Root certificates in the ConfigMaps of every namespace."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from pilot.controllers.root_certificates import RootCertificateController
from pilot.lib.tasks import cancel_tasks
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, server_with_crds, until, watch_options

ROOTS, CRL = "istio-ca-root-cert", "istio-ca-crl"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


class Roots:
    """Controller that writes root certificates into every namespace without the label left=out."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.bundle, self.excluded = server, "one", {"no"}
        self.client = client_of(server)
        self.writer = RootCertificateController(
            self.client, self.config_maps, self.selected, watch_options(), random.Random(1)
        )

    def config_maps(self) -> Mapping[str, Mapping[str, str]]:
        return {ROOTS: {"root-cert.pem": self.bundle}, CRL: {"ca-crl.pem": ""}}

    def selected(self, _: str, labels: Mapping[str, str]) -> bool:
        return labels.get("roots") not in self.excluded

    def roots_by_namespace(self, name: str = ROOTS) -> dict[str, dict[str, str]]:
        objects = self.server.store.collection(("", "configmaps")).objects
        return {key[0]: config_map.plain["data"] for key, config_map in objects.items() if key[1] == name}


@contextlib.asynccontextmanager
async def writing(harness: Roots) -> AsyncIterator[Roots]:
    task = asyncio.create_task(harness.writer.run())
    yield harness
    await cancel_tasks(task)
    await harness.client.close()


async def test_roots_are_written_and_restored_in_every_namespace(server: ApiServer) -> None:
    for name in ("a", "kube-system", "kube-public", "kube-node-lease", "local-path-storage"):
        server.put(namespace(name))
    server.put(namespace("b", roots="no"))
    one = {"root-cert.pem": "one"}
    async with writing(Roots(server)) as roots:
        await until(lambda: roots.roots_by_namespace() == {"a": one, "kube-system": one})
        await until(
            lambda: roots.roots_by_namespace(CRL) == {"a": {"ca-crl.pem": ""}, "kube-system": {"ca-crl.pem": ""}}
        )
        server.put(namespace("c"))
        await until(lambda: roots.roots_by_namespace().get("c") == one)
        server.store.delete(("", "configmaps"), ("a", ROOTS))
        await until(lambda: roots.roots_by_namespace().get("a") == one)
        tampered = {"root-cert.pem": "evil", "more": "x"}
        server.put(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ROOTS, "namespace": "a"}, "data": tampered}
        )
        await until(lambda: roots.roots_by_namespace()["a"] == one)
        config_map = server.get("", "configmaps", "a", ROOTS)
        assert config_map is not None
        assert config_map["metadata"]["labels"] == {"istio.io/config": "true"}
        roots.excluded = set()
        roots.bundle = "two"
        roots.writer.resync()
        two = {"root-cert.pem": "two"}
        await until(lambda: roots.roots_by_namespace() == dict.fromkeys("abc", two) | {"kube-system": two})


async def test_failed_write_is_retried_unless_forbidden(server: ApiServer) -> None:
    def creates(request: Any) -> bool:
        return bool(request.verb == "create")

    server.put(namespace("a"))
    server.faults.refuse(503, times=5, matching=creates)
    async with writing(Roots(server)) as roots:
        await until(lambda: "a" in roots.roots_by_namespace() and "a" in roots.roots_by_namespace(CRL))
        server.faults.refuse(403, times=2, matching=creates)
        server.put(namespace("b"))
        await until(lambda: server.faults.spent)
        server.put(namespace("c"))
        await until(lambda: "c" in roots.roots_by_namespace(CRL))
        assert "b" not in roots.roots_by_namespace()
