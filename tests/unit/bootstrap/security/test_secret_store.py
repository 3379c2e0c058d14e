"""Storage of the self-signed root in Secrets."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator

import pytest
from cryptography import x509

from ca.authority import utc_now
from ca.errors import KeyMaterialError
from ca.self_signed import make_root
from ca.signer import Signer
from pilot.bootstrap.security.secret_store import GENERATED_MARKER, PLUGGED_IN_SECRET, SELF_SIGNED_SECRET, SecretStore
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, server_with_crds


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


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
