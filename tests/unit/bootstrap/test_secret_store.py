"""What is written into clusters: root certificates, addresses of ServiceEntries, the self-signed root."""

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
    async with defined_server() as made:
        yield made


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


class Roots:
    """Root certificates that are written into every namespace that has not the label left=out."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.bundle, self.out = server, "one", {"out"}
        self.client = client_of(server)
        self.writer = RootCertificateController(self.client, self.wanted, self.selected, pace(), random.Random(1))

    def wanted(self) -> Mapping[str, Mapping[str, str]]:
        return {ROOTS: {"root-cert.pem": self.bundle}, CRL: {"ca-crl.pem": ""}}

    def selected(self, _: str, labels: Mapping[str, str]) -> bool:
        return labels.get("left") not in self.out

    def there(self, name: str = ROOTS) -> dict[str, dict[str, str]]:
        found = self.server.store.collection(("", "configmaps")).objects
        return {key[0]: stored.plain["data"] for key, stored in found.items() if key[1] == name}


@contextlib.asynccontextmanager
async def writing(it: Roots) -> AsyncIterator[Roots]:
    task = asyncio.create_task(it.writer.run())
    yield it
    await cancel_tasks(task)
    await it.client.close()


async def test_every_namespace_has_the_roots_and_keeps_them(server: ApiServer) -> None:
    for name in ("a", "kube-system", "kube-public", "kube-node-lease", "local-path-storage"):
        server.put(namespace(name))
    server.put(namespace("b", left="out"))
    one = {"root-cert.pem": "one"}
    async with writing(Roots(server)) as it:
        await until(lambda: it.there() == {"a": one, "kube-system": one})
        await until(lambda: it.there(CRL) == {"a": {"ca-crl.pem": ""}, "kube-system": {"ca-crl.pem": ""}})
        server.put(namespace("c"))
        await until(lambda: it.there().get("c") == one)
        server.store.delete(("", "configmaps"), ("a", ROOTS))
        await until(lambda: it.there().get("a") == one)
        wrong = {"root-cert.pem": "evil", "more": "x"}
        server.put(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ROOTS, "namespace": "a"}, "data": wrong}
        )
        await until(lambda: it.there()["a"] == one)
        plain = server.get("", "configmaps", "a", ROOTS)
        assert plain is not None
        assert plain["metadata"]["labels"] == {"istio.io/config": "true"}
        it.out = set()
        it.bundle = "two"
        it.writer.resync()
        two = {"root-cert.pem": "two"}
        await until(lambda: it.there() == dict.fromkeys("abc", two) | {"kube-system": two})


async def test_a_trust_bundle_has_the_roots_and_keeps_them(server: ApiServer) -> None:
    def there() -> dict[str, str]:
        found = server.get("certificates.k8s.io", "clustertrustbundles", "", trust_bundle.NAME)
        return found["spec"] if found is not None else {}

    roots, client = ["one"], client_of(server)
    writer = TrustBundleController(client, lambda: roots[0], pace(), random.Random(1))
    server.faults.refuse(503, times=3, matching=lambda asked: asked.verb == "create")
    task = asyncio.create_task(writer.run())
    await until(lambda: there() == {"signerName": "istio.io/istiod-ca", "trustBundle": "one"})
    assert server.faults.spent
    kept = server.get("certificates.k8s.io", "clustertrustbundles", "", trust_bundle.NAME) or {}
    server.put({**kept, "spec": {**kept["spec"], "trustBundle": "evil"}})
    await until(lambda: there().get("trustBundle") == "one")
    server.delete(kept)
    await until(lambda: there().get("trustBundle") == "one")
    roots[0] = "two"
    writer.resync()
    await until(lambda: there().get("trustBundle") == "two")
    roots[0] = ""
    server.delete(kept)
    server.faults.bookmark()
    roots[0] = "three"
    writer.resync()
    await until(lambda: there().get("trustBundle") == "three")
    await cancel_tasks(task)
    await client.close()


async def test_a_write_that_fails_is_tried_again_and_one_that_is_forbidden_is_not(server: ApiServer) -> None:
    def creates(asked: Any) -> bool:
        return bool(asked.verb == "create")

    server.put(namespace("a"))
    server.faults.refuse(503, times=5, matching=creates)
    async with writing(Roots(server)) as it:
        await until(lambda: "a" in it.there() and "a" in it.there(CRL))
        server.faults.refuse(403, times=2, matching=creates)
        server.put(namespace("b"))
        await until(lambda: server.faults.spent)
        server.put(namespace("c"))
        await until(lambda: "c" in it.there(CRL))
        assert "b" not in it.there()


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
    """The writer of addresses, on tables that have what the server has."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.mesh, self.client = server, Mesh(), client_of(server)
        config, _ = decode_mesh_config([])
        self.mesh.commit([(self.mesh.mesh, "mesh", config)])
        self.read()
        self.writer = AutoAddressController(self.client, self.mesh, self._path, QUICK.backoff, random.Random(1))

    def _path(self, key: ObjectKey) -> str:
        return f"/apis/networking.istio.io/v1/namespaces/{key.namespace}/serviceentries/{key.name}"

    def read(self) -> None:
        objects = self.server.store.collection(("networking.istio.io", "serviceentries")).objects
        rows = rows_of([stored.plain for stored in objects.values()])
        gone = [key for key, _ in SERVICE_ENTRY.table(self.mesh).rows() if (SERVICE_ENTRY.table_name, key) not in rows]
        changes = {key: row for (_, key), row in rows.items()} | dict.fromkeys(gone)
        self.mesh.commit([(SERVICE_ENTRY.table(self.mesh), key, row) for key, row in changes.items()])

    def written(self) -> dict[str, list[str]]:
        objects = self.server.store.collection(("networking.istio.io", "serviceentries")).objects
        return {
            name: [f"{a['host']}={a['value']}" for a in s.plain.get("status", {}).get("addresses") or []]
            for (_, name), s in objects.items()
        }


async def test_addresses_are_written_by_age_kept_and_taken_back(server: ApiServer) -> None:
    server.put(entry("young", 2, "b.com,c.com"))
    server.put(entry("old", 1, "a.com"))
    server.put(entry("own", 3, "d.com", addresses=["240.240.0.2"]))
    it = Addresses(server)
    task = asyncio.create_task(it.writer.run())
    wanted = {
        "old": ["a.com=240.240.0.1", "a.com=2001:2::1"],
        "young": ["b.com=240.240.0.3", "b.com=2001:2::2", "c.com=240.240.0.4", "c.com=2001:2::3"],
        "own": [],
    }
    await until(lambda: it.written() == wanted)
    writes = len([asked for asked in server.requests if asked.verb == "patch"])
    it.read()
    it.writer.resync()
    server.put(entry("older", 1, "0.com"))
    it.read()
    it.writer.resync()
    await until(lambda: it.written()["older"] == ["0.com=240.240.0.5", "0.com=2001:2::4"])
    assert len([asked for asked in server.requests if asked.verb == "patch"]) == writes + 1, (
        "those that have theirs are not written again"
    )
    plain = server.get("networking.istio.io", "serviceentries", "shop", "young")
    assert plain is not None
    server.put({**plain, "spec": {**plain["spec"], "resolution": "NONE"}})
    it.read()
    it.writer.resync()
    await until(lambda: it.written()["young"] == [])
    await cancel_tasks(task)
    await it.client.close()


async def test_of_two_that_hold_one_address_the_older_keeps_it(server: ApiServer) -> None:
    status = {"addresses": [{"host": "a.com", "value": "240.240.0.1"}]}
    server.put({**entry("old", 1, "a.com"), "status": status})
    server.put({**entry("young", 2, "b.com"), "status": {"addresses": [{"host": "b.com", "value": "240.240.0.1"}]}})
    it = Addresses(server)
    task = asyncio.create_task(it.writer.run())
    await until(lambda: it.written()["young"] == ["b.com=240.240.0.2", "b.com=2001:2::1"])
    assert it.written()["old"] == ["a.com=240.240.0.1"]
    await cancel_tasks(task)
    await it.client.close()


def certificate(signer: Signer | None) -> x509.Certificate | None:
    return signer.certificate if signer is not None else None


async def test_a_root_is_kept_in_the_secret_of_plugged_in_ones_where_it_has_no_other_place(server: ApiServer) -> None:
    client = client_of(server)
    loop = asyncio.get_running_loop()

    def store() -> SecretStore:
        return SecretStore(client, "istio-system", loop, (SELF_SIGNED_SECRET, PLUGGED_IN_SECRET))

    one = store()
    assert await asyncio.to_thread(one.load) is None
    first, second = (make_root("cluster.local", datetime.timedelta(days=1), utc_now()) for _ in range(2))
    await asyncio.to_thread(one.save, first)
    kept = server.get("", "secrets", "istio-system", PLUGGED_IN_SECRET)
    assert kept is not None
    assert kept["data"][GENERATED_MARKER] == ""
    assert server.get("", "secrets", "istio-system", SELF_SIGNED_SECRET) is None
    assert certificate(await asyncio.to_thread(store().load)) == first.certificate
    await asyncio.to_thread(SecretStore(client, "istio-system", loop).save, second)
    assert certificate(await asyncio.to_thread(store().load)) == second.certificate, (
        "a root in its own Secret comes first"
    )
    server.delete(server.get("", "secrets", "istio-system", SELF_SIGNED_SECRET) or {})
    server.put({**kept, "data": {key: value for key, value in kept["data"].items() if key != GENERATED_MARKER}})
    with pytest.raises(
        KeyMaterialError, match="cacerts has a plugged-in certificate, which must be mounted at ROOT_CA_DIR"
    ):
        await asyncio.to_thread(store().load)
    await client.close()


async def test_replicas_share_the_root_in_a_secret(server: ApiServer) -> None:
    client = client_of(server)
    loop = asyncio.get_running_loop()
    one, two = (SecretStore(client, "istio-system", loop) for _ in range(2))
    assert await asyncio.to_thread(one.load) is None
    assert await asyncio.to_thread(two.load) is None
    first, second = (make_root("cluster.local", datetime.timedelta(days=1), utc_now()) for _ in range(2))
    await asyncio.to_thread(one.save, first)
    with pytest.raises(KeyMaterialError, match="another replica"):
        await asyncio.to_thread(two.save, second)
    assert certificate(await asyncio.to_thread(two.load)) == first.certificate
    await asyncio.to_thread(two.save, second)
    with pytest.raises(KeyMaterialError, match="another replica"):
        await asyncio.to_thread(one.save, first)
    assert certificate(await asyncio.to_thread(one.load)) == second.certificate
    plain = server.get("", "secrets", "istio-system", "istio-ca-secret")
    assert plain is not None
    assert plain["type"] == "istio.io/ca-root"
    await server.stop()
    with pytest.raises(KeyMaterialError, match="istio-ca-secret"):
        await asyncio.to_thread(one.load)
    await client.close()
