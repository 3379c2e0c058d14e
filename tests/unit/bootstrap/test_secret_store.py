"""Objects written into clusters: root certificates, ServiceEntry addresses and the self-signed root."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from cryptography import x509

from ca.authority import utc_now
from ca.errors import KeyMaterialError
from ca.self_signed import make_root
from ca.signer import Signer
from pilot.bootstrap.security.secret_store import GENERATED_MARKER, PLUGGED_IN_SECRET, SELF_SIGNED_SECRET, SecretStore
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.object import ObjectKey
from pilot.controllers import cluster_trust_bundle as trust_bundle
from pilot.controllers.cluster_trust_bundle import TrustBundleController
from pilot.controllers.root_certificates import RootCertificateController
from pilot.controllers.service_entry_addresses import AutoAddressController
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.tasks import cancel_tasks
from pilot.mesh.tables.database import Mesh
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import QUICK, client_of, defined_server, pace, until
from testing.mesh.world import rows_of

ROOTS, CRL = "istio-ca-root-cert", "istio-ca-crl"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with defined_server() as api_server:
        yield api_server


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


class Roots:
    """Controller that writes root certificates into every namespace without the label left=out."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.bundle, self.excluded = server, "one", {"no"}
        self.client = client_of(server)
        self.writer = RootCertificateController(self.client, self.config_maps, self.selected, pace(), random.Random(1))

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


async def test_trust_bundle_is_written_and_restored(server: ApiServer) -> None:
    def trust_bundle_spec() -> dict[str, str]:
        bundle = server.get("certificates.k8s.io", "clustertrustbundles", "", trust_bundle.NAME)
        return bundle["spec"] if bundle is not None else {}

    roots, client = ["one"], client_of(server)
    writer = TrustBundleController(client, lambda: roots[0], pace(), random.Random(1))
    server.faults.refuse(503, times=3, matching=lambda request: request.verb == "create")
    task = asyncio.create_task(writer.run())
    await until(lambda: trust_bundle_spec() == {"signerName": "istio.io/istiod-ca", "trustBundle": "one"})
    assert server.faults.spent
    bundle = server.get("certificates.k8s.io", "clustertrustbundles", "", trust_bundle.NAME) or {}
    server.put({**bundle, "spec": {**bundle["spec"], "trustBundle": "evil"}})
    await until(lambda: trust_bundle_spec().get("trustBundle") == "one")
    server.delete(bundle)
    await until(lambda: trust_bundle_spec().get("trustBundle") == "one")
    roots[0] = "two"
    writer.resync()
    await until(lambda: trust_bundle_spec().get("trustBundle") == "two")
    roots[0] = ""
    server.delete(bundle)
    server.faults.bookmark()
    roots[0] = "three"
    writer.resync()
    await until(lambda: trust_bundle_spec().get("trustBundle") == "three")
    await cancel_tasks(task)
    await client.close()


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


def entry(name: str, day: int, hosts: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": f"2025-01-{day:02}T00:00:00Z"}
    spec = {
        "hosts": hosts.split(","),
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "resolution": "DNS",
        **more,
    }
    return {"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": metadata, "spec": spec}


class Addresses:
    """The address controller, with tables that mirror the server."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.mesh, self.client = server, Mesh(), client_of(server)
        config, _ = decode_mesh_config([])
        self.mesh.commit([(self.mesh.mesh, "mesh", config)])
        self.load()
        self.writer = AutoAddressController(self.client, self.mesh, self._path, QUICK.backoff, random.Random(1))

    def _path(self, key: ObjectKey) -> str:
        return f"/apis/networking.istio.io/v1/namespaces/{key.namespace}/serviceentries/{key.name}"

    def load(self) -> None:
        objects = self.server.store.collection(("networking.istio.io", "serviceentries")).objects
        rows = rows_of([stored.plain for stored in objects.values()])
        deleted = [
            key for key, _ in SERVICE_ENTRY.table(self.mesh).rows() if (SERVICE_ENTRY.table_name, key) not in rows
        ]
        changes = {key: row for (_, key), row in rows.items()} | dict.fromkeys(deleted)
        self.mesh.commit([(SERVICE_ENTRY.table(self.mesh), key, row) for key, row in changes.items()])

    def addresses(self) -> dict[str, list[str]]:
        objects = self.server.store.collection(("networking.istio.io", "serviceentries")).objects
        return {
            name: [f"{a['host']}={a['value']}" for a in s.plain.get("status", {}).get("addresses") or []]
            for (_, name), s in objects.items()
        }


async def test_addresses_are_assigned_by_age_and_released(server: ApiServer) -> None:
    server.put(entry("young", 2, "b.com,c.com"))
    server.put(entry("old", 1, "a.com"))
    server.put(entry("own", 3, "d.com", addresses=["240.240.0.2"]))
    harness = Addresses(server)
    task = asyncio.create_task(harness.writer.run())
    expected = {
        "old": ["a.com=240.240.0.1", "a.com=2001:2::1"],
        "young": ["b.com=240.240.0.3", "b.com=2001:2::2", "c.com=240.240.0.4", "c.com=2001:2::3"],
        "own": [],
    }
    await until(lambda: harness.addresses() == expected)
    writes = len([request for request in server.requests if request.verb == "patch"])
    harness.load()
    harness.writer.resync()
    server.put(entry("older", 1, "0.com"))
    harness.load()
    harness.writer.resync()
    await until(lambda: harness.addresses()["older"] == ["0.com=240.240.0.5", "0.com=2001:2::4"])
    assert len([request for request in server.requests if request.verb == "patch"]) == writes + 1, (
        "entries with addresses are not rewritten"
    )
    plain = server.get("networking.istio.io", "serviceentries", "shop", "young")
    assert plain is not None
    server.put({**plain, "spec": {**plain["spec"], "resolution": "NONE"}})
    harness.load()
    harness.writer.resync()
    await until(lambda: harness.addresses()["young"] == [])
    await cancel_tasks(task)
    await harness.client.close()


async def test_older_entry_keeps_a_duplicate_address(server: ApiServer) -> None:
    status = {"addresses": [{"host": "a.com", "value": "240.240.0.1"}]}
    server.put({**entry("old", 1, "a.com"), "status": status})
    server.put({**entry("young", 2, "b.com"), "status": {"addresses": [{"host": "b.com", "value": "240.240.0.1"}]}})
    harness = Addresses(server)
    task = asyncio.create_task(harness.writer.run())
    await until(lambda: harness.addresses()["young"] == ["b.com=240.240.0.2", "b.com=2001:2::1"])
    assert harness.addresses()["old"] == ["a.com=240.240.0.1"]
    await cancel_tasks(task)
    await harness.client.close()


def certificate(signer: Signer | None) -> x509.Certificate | None:
    return signer.certificate if signer is not None else None


async def test_root_is_stored_in_the_plugged_in_secret_as_fallback(server: ApiServer) -> None:
    client = client_of(server)
    loop = asyncio.get_running_loop()

    def store() -> SecretStore:
        return SecretStore(client, "istio-system", loop, (SELF_SIGNED_SECRET, PLUGGED_IN_SECRET))

    empty_store = store()
    assert await asyncio.to_thread(empty_store.load) is None
    first, second = (make_root("cluster.local", datetime.timedelta(days=1), utc_now()) for _ in range(2))
    await asyncio.to_thread(empty_store.save, first)
    secret = server.get("", "secrets", "istio-system", PLUGGED_IN_SECRET)
    assert secret is not None
    assert secret["data"][GENERATED_MARKER] == ""
    assert server.get("", "secrets", "istio-system", SELF_SIGNED_SECRET) is None
    assert certificate(await asyncio.to_thread(store().load)) == first.certificate
    await asyncio.to_thread(SecretStore(client, "istio-system", loop).save, second)
    assert certificate(await asyncio.to_thread(store().load)) == second.certificate, "the root's own Secret wins"
    server.delete(server.get("", "secrets", "istio-system", SELF_SIGNED_SECRET) or {})
    server.put({**secret, "data": {key: value for key, value in secret["data"].items() if key != GENERATED_MARKER}})
    with pytest.raises(
        KeyMaterialError, match="cacerts has a plugged-in certificate, which must be mounted at ROOT_CA_DIR"
    ):
        await asyncio.to_thread(store().load)
    await client.close()


async def test_replicas_share_the_root_in_a_secret(server: ApiServer) -> None:
    client = client_of(server)
    loop = asyncio.get_running_loop()
    first_store, second_store = (SecretStore(client, "istio-system", loop) for _ in range(2))
    assert await asyncio.to_thread(first_store.load) is None
    assert await asyncio.to_thread(second_store.load) is None
    first, second = (make_root("cluster.local", datetime.timedelta(days=1), utc_now()) for _ in range(2))
    await asyncio.to_thread(first_store.save, first)
    with pytest.raises(KeyMaterialError, match="another replica"):
        await asyncio.to_thread(second_store.save, second)
    assert certificate(await asyncio.to_thread(second_store.load)) == first.certificate
    await asyncio.to_thread(second_store.save, second)
    with pytest.raises(KeyMaterialError, match="another replica"):
        await asyncio.to_thread(first_store.save, first)
    assert certificate(await asyncio.to_thread(first_store.load)) == second.certificate
    secret = server.get("", "secrets", "istio-system", "istio-ca-secret")
    assert secret is not None
    assert secret["type"] == "istio.io/ca-root"
    await server.stop()
    with pytest.raises(KeyMaterialError, match="istio-ca-secret"):
        await asyncio.to_thread(first_store.load)
    await client.close()
