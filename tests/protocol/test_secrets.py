"""Secrets on a stream: missing secrets, changes, and access reviews."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.xds_types import SECRET
from pilot.mesh.tables.database import EVERY_ACCOUNT, AccountKey
from pilot.xds.push.secret_report import SecretReport
from pilot.xds.secret_access import ALLOWED_SECONDS, DENIED_SECONDS, SecretAccess
from testing.clients.ads import Client, Server, header_identities, serving
from testing.mesh.world import rows_of
from testing.security.credentials import Authority, data_secret, tls_secret

BOTH_VARIANTS = pytest.mark.parametrize("variant", ["sotw", "delta"])
NODE = "router~10.0.0.1~edge-0.edge~edge.svc.cluster.local"
CA = Authority()
WEB, NEXT = CA.issue("web.example.com"), CA.issue("web.example.com")
FAILED = "pilot_sds_certificate_errors_total"


class Edge:
    """A control plane that serves the secrets of a Mesh to authenticated callers."""

    def __init__(self, server: Server) -> None:
        self.server, self.db = server, server.db
        mesh, _ = decode_mesh_config([])
        server.discovery.commit([(self.db.mesh, "mesh", mesh), (self.db.mesh, "networks", MeshNetworks())], {})
        self.allow(EVERY_ACCOUNT)

    def allow(self, account: AccountKey, allowed: bool | None = True) -> None:
        self.server.discovery.commit([(self.db.secret_access, account, allowed)], {"secret": 1})

    def set(self, *objects: Mapping[str, Any]) -> int:
        """Return the number of affected streams."""
        return self.edit(rows_of(objects))

    def edit(self, rows: Mapping[tuple[str, Any], Any]) -> int:
        return self.server.discovery.wake(
            self.db.commit([(self.db.tables[table], key, row) for (table, key), row in rows.items()]), {"secret": 1}
        )

    def client(self, variant: str, account: str = "edge") -> Client:
        shows = f"spiffe://cluster.local/ns/edge/sa/{account}"
        return Client(
            self.server,
            variant,
            NODE.replace("edge-0", f"{account}-0"),
            shows,
            NAMESPACE="edge",
            SERVICE_ACCOUNT=account,
        )


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Edge]:
    async with serving(plan=proxy_plan, authenticate=header_identities) as server:
        yield Edge(server)


async def take(client: Client) -> tuple[dict[str, bytes], tuple[str, ...], str]:
    """Return the secrets of the next response by name, the removed names, and the nonce."""
    response = await client.receive()
    assert response.type_url == SECRET
    secrets = [secret_pb2.Secret.FromString(getattr(r, "resource", r).value) for r in response.resources]
    contents = {
        s.name: s.tls_certificate.certificate_chain.inline_bytes or s.validation_context.trusted_ca.inline_bytes
        for s in secrets
    }
    return contents, tuple(getattr(response, "removed_resources", ())), response.nonce


@BOTH_VARIANTS
async def test_missing_secret_is_sent_when_it_appears(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client:
        await client.request("sds", "kubernetes://web", "kubernetes://late")
        edge.set(tls_secret("other", WEB))
        content, removed, nonce = await take(client)
        assert (content, set(removed)) == (
            {},
            {"kubernetes://web", "kubernetes://late"} if variant == "delta" else set(),
        )
        await client.request(
            "sds", *(("kubernetes://web", "kubernetes://late") if variant == "sotw" else ()), nonce=nonce
        )
        assert edge.set(tls_secret("web", WEB)) == 1
        assert (await take(client))[:2] == ({"kubernetes://web": WEB.chain}, ())
        assert edge.server.metric(f"{FAILED} 3")  # two in the first response, one in the second


@BOTH_VARIANTS
async def test_edit_pushes_only_its_secret_to_subscribers(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client, edge.client(variant, "other") as other:
        edge.set(tls_secret("web", WEB, ca_crt=CA.pem), tls_secret("second", WEB), tls_secret("third", WEB))
        await client.request("sds", "kubernetes://web", "kubernetes://web-cacert", "kubernetes://second")
        assert set((await take(client))[0]) == {"kubernetes://web", "kubernetes://web-cacert", "kubernetes://second"}
        await other.request("sds", "kubernetes://third")
        assert set((await take(other))[0]) == {"kubernetes://third"}
        assert edge.set(tls_secret("web", NEXT, ca_crt=CA.pem)) == 1
        assert (await take(client))[:2] == ({"kubernetes://web": NEXT.chain}, ())
        assert edge.set(tls_secret("unsubscribed", WEB)) == 0
        unchanged = tls_secret("web", NEXT, ca_crt=CA.pem)
        assert edge.set(unchanged | {"metadata": unchanged["metadata"] | {"resourceVersion": "7"}}) == 0
        edge.set(tls_secret("web", WEB, ca_crt=CA.pem))
        assert (await take(client))[:2] == ({"kubernetes://web": WEB.chain}, ())


@BOTH_VARIANTS
async def test_secret_is_deleted_and_recreated(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client:
        edge.set(tls_secret("web", WEB), tls_secret("other", WEB))
        await client.request("sds", "kubernetes://web", "kubernetes://other")
        await take(client)
        edge.edit(dict.fromkeys(rows_of([tls_secret("web", WEB)])))
        if variant == "delta":
            assert (await take(client))[:2] == ({}, ("kubernetes://web",))
        edge.set(tls_secret("web", NEXT))
        assert (await take(client))[:2] == ({"kubernetes://web": NEXT.chain}, ())


@BOTH_VARIANTS
async def test_invalid_secret_is_not_sent(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client:
        edge.set(tls_secret("web", WEB), tls_secret("other", WEB))
        await client.request("sds", "kubernetes://web", "kubernetes://other")
        await take(client)
        edge.set(data_secret("web", {"tls.crt": b"garbage", "tls.key": WEB.private_key}))
        if variant == "delta":  # Envoy keeps a removed secret
            assert (await take(client))[:2] == ({}, ("kubernetes://web",))
        edge.set(tls_secret("other", NEXT))
        assert (await take(client))[0] == {"kubernetes://other": NEXT.chain}


@BOTH_VARIANTS
async def test_cve_2021_34824_same_secret_name_in_two_namespaces(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client:
        foreign_identity = "spiffe://cluster.local/ns/far/sa/far"
        async with Client(
            edge.server, variant, NODE.replace("edge", "far"), foreign_identity, NAMESPACE="far"
        ) as foreigner:
            edge.set(tls_secret("web", WEB))
            await client.request("sds", "kubernetes://web", "kubernetes://edge/web")
            assert set((await take(client))[0]) == {"kubernetes://web", "kubernetes://edge/web"}
            await foreigner.request("sds", "kubernetes://web", "kubernetes://edge/web")
            assert (await take(foreigner))[0] == {}
            assert edge.set(tls_secret("web", NEXT)) == 1
            assert set((await take(client))[0]) == {"kubernetes://web", "kubernetes://edge/web"}


# -- access reviews --------------------------------------------------------------------------------------------------------


class FakeReviews:
    """Access reviews that wait for an answer from the test."""

    def __init__(self) -> None:
        self.accounts: list[AccountKey] = []
        self.answers: asyncio.Queue[bool | Exception] = asyncio.Queue()
        self.time = 1000.0

    async def __call__(self, account: AccountKey) -> bool:
        self.accounts.append(account)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextlib.asynccontextmanager
async def running_with_reviews() -> AsyncIterator[tuple[Edge, FakeReviews, SecretAccess]]:
    async with running() as edge:
        edge.allow(EVERY_ACCOUNT, None)
        reviews = FakeReviews()
        access = SecretAccess(edge.server.discovery, reviews, lambda: reviews.time)
        edge.server.ads.options.request_listeners[SECRET] = access.on_request
        edge.set(tls_secret("web", WEB, ca_crt=CA.pem))
        try:
            yield edge, reviews, access
        finally:
            await access.stop()


def secret_pushes(edge: Edge) -> int:
    lines = edge.server.metrics.exposition().decode().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith('pilot_push_triggers{type="secret"} '))


@BOTH_VARIANTS
async def test_secrets_wait_for_the_access_review(variant: str) -> None:
    async with (
        running_with_reviews() as (edge, reviews, _),
        edge.client(variant) as client,
        edge.client(variant, "other") as other,
    ):
        for reader in (client, other):
            await reader.request("sds", "kubernetes://web", "kubernetes://web-cacert")
        await edge.server.eventually(lambda: len(reviews.accounts) == 2)
        assert {account.name for account in reviews.accounts} == {"edge", "other"}
        await client.request("cds")
        assert (await client.receive()).type_url != SECRET
        first = "edge" if reviews.accounts[0].name == "edge" else "other"
        for allowed in (True, False):
            reviews.answers.put_nowait(allowed)
        permitted, denied = (client, other) if first == "edge" else (other, client)
        assert set((await take(permitted))[0]) == {"kubernetes://web", "kubernetes://web-cacert"}
        assert set((await take(denied))[0]) == {"kubernetes://web-cacert"}


async def test_streams_of_an_account_share_a_review_until_it_expires() -> None:
    async with (
        running_with_reviews() as (edge, reviews, access),
        edge.client("delta") as client,
        edge.client("sotw") as second,
    ):
        reviews.answers.put_nowait(False)
        for reader in (client, second):
            await reader.request("sds", "kubernetes://web")
            assert (await take(reader))[0] == {}
        access.sweep()
        assert len(reviews.accounts) == 1
        reviews.time += DENIED_SECONDS
        before = secret_pushes(edge)
        reviews.answers.put_nowait(True)
        access.sweep()
        for reader in (client, second):
            assert set((await take(reader))[0]) == {"kubernetes://web"}
        assert secret_pushes(edge) - before == 2
        reviews.time += ALLOWED_SECONDS
        reviews.answers.put_nowait(OSError("no route"))
        access.sweep()
        await edge.server.eventually(reviews.answers.empty)
        assert edge.db.secret_access.peek(reviews.accounts[0]) is True, (
            "the last answer stays in force until there is a new one"
        )
        assert len(reviews.accounts) == 3


async def test_failed_review_denies_access_until_the_streams_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_with_reviews() as (edge, reviews, access):
        reviews.answers.put_nowait(OSError("no route"))
        async with edge.client("delta") as client:
            await client.request("sds", "kubernetes://web")
            assert (await take(client))[0] == {}
            assert edge.db.secret_access.peek(reviews.accounts[0]) is False
        await edge.server.eventually(lambda: not edge.server.discovery.connections())
        reviews.time += DENIED_SECONDS
        access.sweep()
        assert edge.db.secret_access.peek(reviews.accounts[0]) is None
        assert len(reviews.accounts) == 1


# -- log and metrics -------------------------------------------------------------------------------------------------------


async def test_missing_secrets_are_logged_and_counted_without_keys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running() as edge, edge.client("delta") as client:
        edge.set(tls_secret("web", CA.issue("x", end=-datetime.timedelta(hours=1))))
        await client.request("sds", "kubernetes://web", "kubernetes://nothing")
        await take(client)
        assert edge.server.metric(f"{FAILED} 2")
    messages = [record.getMessage() for record in caplog.records if "secret" in record.getMessage()]
    assert len(messages) == 2
    assert "requested missing secret kubernetes://nothing" in messages[0]
    assert "requested expired secret kubernetes://web" in messages[1]
    assert not any("PRIVATE" in record.getMessage() for record in caplog.records)


async def test_secret_request_without_authentication_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        running() as edge,
        Client(edge.server, "delta", NODE, "", NAMESPACE="edge", SERVICE_ACCOUNT="edge") as client,
    ):
        edge.set(tls_secret("web", WEB))
        await client.request("cds")
        await client.request("sds", "kubernetes://web")
        await edge.server.eventually(lambda: edge.server.metric(f"{FAILED} 1"))
    messages = [record.getMessage() for record in caplog.records if "missing secret" in record.getMessage()]
    assert [line.partition(" requested ")[2] for line in messages] == [
        "missing secret kubernetes://web (the proxy is not authenticated)"
    ]


def test_report_ignores_other_types() -> None:
    class ClusterResponse:
        type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

    metrics = Metrics()
    SecretReport(metrics).on_response(None, ClusterResponse())
    assert FAILED.encode() not in metrics.exposition()
