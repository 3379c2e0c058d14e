"""Secrets on a stream: what is not there yet, what changes, who waits for the answer whether it may read."""

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
from pilot.lib.metrics import Metrics
from pilot.lib.xds_types import SECRET
from pilot.mesh.tables.database import EVERY_ACCOUNT, AccountKey
from pilot.xds.push.secret_report import SecretReport
from pilot.xds.secret_access import ALLOWED_SECONDS, DENIED_SECONDS, SecretAccess
from testing.clients.ads import Client, Server, serving, shown
from testing.mesh.world import rows_of
from testing.security.credentials import Authority, data_secret, tls_secret

BOTH = pytest.mark.parametrize("variant", ["sotw", "delta"])
NODE = "router~10.0.0.1~edge-0.edge~edge.svc.cluster.local"
CA = Authority()
WEB, NEXT = CA.issue("web.example.com"), CA.issue("web.example.com")
FAILED = "pilot_sds_certificate_errors_total"


class Edge:
    """A control plane that serves secrets of the Mesh, to callers that show who they are."""

    def __init__(self, server: Server) -> None:
        self.server, self.db = server, server.db
        mesh, _ = decode_mesh_config([])
        server.discovery.commit([(self.db.mesh, "mesh", mesh), (self.db.mesh, "networks", MeshNetworks())], {})
        self.allow(EVERY_ACCOUNT)

    def allow(self, account: AccountKey, allowed: bool | None = True) -> None:
        self.server.discovery.commit([(self.db.secret_access, account, allowed)], {"secret": 1})

    def set(self, *objects: Mapping[str, Any]) -> int:
        """The number of streams that it concerns."""
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
    async with serving(plan=proxy_plan, authenticate=shown) as server:
        yield Edge(server)


async def take(client: Client) -> tuple[dict[str, bytes], tuple[str, ...], str]:
    """The secrets of the next response by name, the names that are gone, and the nonce."""
    response = await client.take()
    assert response.type_url == SECRET
    found = [secret_pb2.Secret.FromString(getattr(r, "resource", r).value) for r in response.resources]
    content = {
        s.name: s.tls_certificate.certificate_chain.inline_bytes or s.validation_context.trusted_ca.inline_bytes
        for s in found
    }
    return content, tuple(getattr(response, "removed_resources", ())), response.nonce


@BOTH
async def test_a_secret_that_is_not_there_yet_comes_when_it_is(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client:
        await client.ask("sds", "kubernetes://web", "kubernetes://late")
        edge.set(tls_secret("other", WEB))
        content, gone, nonce = await take(client)
        assert (content, set(gone)) == ({}, {"kubernetes://web", "kubernetes://late"} if variant == "delta" else set())
        await client.ask("sds", *(("kubernetes://web", "kubernetes://late") if variant == "sotw" else ()), nonce=nonce)
        assert edge.set(tls_secret("web", WEB)) == 1
        assert (await take(client))[:2] == ({"kubernetes://web": WEB.chain}, ())
        assert edge.server.metric(f"{FAILED} 3")  # two at first, then the one that still is not there


@BOTH
async def test_an_edit_pushes_its_secret_alone_to_who_asked_for_it(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client, edge.client(variant, "other") as other:
        edge.set(tls_secret("web", WEB, ca_crt=CA.pem), tls_secret("second", WEB), tls_secret("third", WEB))
        await client.ask("sds", "kubernetes://web", "kubernetes://web-cacert", "kubernetes://second")
        assert set((await take(client))[0]) == {"kubernetes://web", "kubernetes://web-cacert", "kubernetes://second"}
        await other.ask("sds", "kubernetes://third")
        assert set((await take(other))[0]) == {"kubernetes://third"}
        assert edge.set(tls_secret("web", NEXT, ca_crt=CA.pem)) == 1
        assert (await take(client))[:2] == ({"kubernetes://web": NEXT.chain}, ())
        assert edge.set(tls_secret("unasked", WEB)) == 0
        again = tls_secret("web", NEXT, ca_crt=CA.pem)
        assert edge.set(again | {"metadata": again["metadata"] | {"resourceVersion": "7"}}) == 0
        edge.set(tls_secret("web", WEB, ca_crt=CA.pem))
        assert (await take(client))[:2] == ({"kubernetes://web": WEB.chain}, ())


@BOTH
async def test_a_secret_that_goes_and_comes_again(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client:
        edge.set(tls_secret("web", WEB), tls_secret("other", WEB))
        await client.ask("sds", "kubernetes://web", "kubernetes://other")
        await take(client)
        edge.edit(dict.fromkeys(rows_of([tls_secret("web", WEB)])))
        if variant == "delta":
            assert (await take(client))[:2] == ({}, ("kubernetes://web",))
        edge.set(tls_secret("web", NEXT))
        assert (await take(client))[:2] == ({"kubernetes://web": NEXT.chain}, ())


@BOTH
async def test_a_secret_that_becomes_garbage_is_not_sent_and_the_proxy_keeps_what_it_has(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client:
        edge.set(tls_secret("web", WEB), tls_secret("other", WEB))
        await client.ask("sds", "kubernetes://web", "kubernetes://other")
        await take(client)
        edge.set(data_secret("web", {"tls.crt": b"garbage", "tls.key": WEB.private_key}))
        if variant == "delta":  # Envoy keeps a secret that is said to be gone
            assert (await take(client))[:2] == ({}, ("kubernetes://web",))
        edge.set(tls_secret("other", NEXT))
        assert (await take(client))[0] == {"kubernetes://other": NEXT.chain}


@BOTH
async def test_cve_2021_34824_two_namespaces_ask_for_one_name_on_streams_of_one_server(variant: str) -> None:
    async with running() as edge, edge.client(variant) as client:
        far = "spiffe://cluster.local/ns/far/sa/far"
        async with Client(edge.server, variant, NODE.replace("edge", "far"), far, NAMESPACE="far") as stranger:
            edge.set(tls_secret("web", WEB))
            await client.ask("sds", "kubernetes://web", "kubernetes://edge/web")
            assert set((await take(client))[0]) == {"kubernetes://web", "kubernetes://edge/web"}
            await stranger.ask("sds", "kubernetes://web", "kubernetes://edge/web")
            assert (await take(stranger))[0] == {}
            assert edge.set(tls_secret("web", NEXT)) == 1
            assert set((await take(client))[0]) == {"kubernetes://web", "kubernetes://edge/web"}


# -- accounts that have to be asked about ----------------------------------------------------------------------------------


class Reviews:
    """Answers as a test says, when it says so; counts."""

    def __init__(self) -> None:
        self.asked: list[AccountKey] = []
        self.answers: asyncio.Queue[bool | Exception] = asyncio.Queue()
        self.time = 1000.0

    async def __call__(self, account: AccountKey) -> bool:
        self.asked.append(account)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextlib.asynccontextmanager
async def reviewed() -> AsyncIterator[tuple[Edge, Reviews, SecretAccess]]:
    async with running() as edge:
        edge.allow(EVERY_ACCOUNT, None)
        reviews = Reviews()
        access = SecretAccess(edge.server.discovery, reviews, lambda: reviews.time)
        edge.server.ads.options.request_listeners[SECRET] = access.on_request
        edge.set(tls_secret("web", WEB, ca_crt=CA.pem))
        try:
            yield edge, reviews, access
        finally:
            await access.stop()


def pushed_for_secrets(edge: Edge) -> int:
    lines = edge.server.metrics.exposition().decode().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith('pilot_push_triggers{type="secret"} '))


@BOTH
async def test_a_proxy_waits_until_it_is_known_whether_its_account_may_read(variant: str) -> None:
    async with reviewed() as (edge, reviews, _), edge.client(variant) as client, edge.client(variant, "other") as other:
        for one in (client, other):
            await one.ask("sds", "kubernetes://web", "kubernetes://web-cacert")
        await edge.server.eventually(lambda: len(reviews.asked) == 2)
        assert {account.name for account in reviews.asked} == {"edge", "other"}
        await client.ask("cds")
        assert (await client.take()).type_url != SECRET
        first = "edge" if reviews.asked[0].name == "edge" else "other"
        for allowed in (True, False):
            reviews.answers.put_nowait(allowed)
        allowed_one, refused = (client, other) if first == "edge" else (other, client)
        assert set((await take(allowed_one))[0]) == {"kubernetes://web", "kubernetes://web-cacert"}
        assert set((await take(refused))[0]) == {"kubernetes://web-cacert"}


async def test_an_account_is_asked_about_once_for_all_its_streams_and_again_when_the_answer_is_old() -> None:
    async with reviewed() as (edge, reviews, access), edge.client("delta") as client, edge.client("sotw") as second:
        reviews.answers.put_nowait(False)
        for one in (client, second):
            await one.ask("sds", "kubernetes://web")
            assert (await take(one))[0] == {}
        access.sweep()
        assert len(reviews.asked) == 1
        reviews.time += DENIED_SECONDS
        before = pushed_for_secrets(edge)
        reviews.answers.put_nowait(True)
        access.sweep()
        for one in (client, second):
            assert set((await take(one))[0]) == {"kubernetes://web"}
        assert pushed_for_secrets(edge) - before == 2
        reviews.time += ALLOWED_SECONDS
        reviews.answers.put_nowait(OSError("no route"))
        access.sweep()
        await edge.server.eventually(reviews.answers.empty)
        assert edge.db.secret_access.peek(reviews.asked[0]) is True, "the last answer stays while there is no other"
        assert len(reviews.asked) == 3


async def test_an_account_is_refused_when_nothing_can_be_found_out_and_forgotten_when_its_streams_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reviewed() as (edge, reviews, access):
        reviews.answers.put_nowait(OSError("no route"))
        async with edge.client("delta") as client:
            await client.ask("sds", "kubernetes://web")
            assert (await take(client))[0] == {}
            assert edge.db.secret_access.peek(reviews.asked[0]) is False
        await edge.server.eventually(lambda: not edge.server.discovery.connections())
        reviews.time += DENIED_SECONDS
        access.sweep()
        assert edge.db.secret_access.peek(reviews.asked[0]) is None
        assert len(reviews.asked) == 1


# -- what is told ----------------------------------------------------------------------------------------------------------


async def test_what_a_proxy_gets_no_secret_for_is_in_the_log_and_counted_and_no_key_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running() as edge, edge.client("delta") as client:
        edge.set(tls_secret("web", CA.issue("x", end=-datetime.timedelta(hours=1))))
        await client.ask("sds", "kubernetes://web", "kubernetes://nothing")
        await take(client)
        assert edge.server.metric(f"{FAILED} 2")
    told = [record.getMessage() for record in caplog.records if "secret" in record.getMessage()]
    assert len(told) == 2
    assert "requested missing secret kubernetes://nothing" in told[0]
    assert "requested expired secret kubernetes://web" in told[1]
    assert not any("PRIVATE" in record.getMessage() for record in caplog.records)


async def test_who_has_not_proved_who_it_is_is_told_of_in_the_log_for_it_is_told_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        running() as edge,
        Client(edge.server, "delta", NODE, "", NAMESPACE="edge", SERVICE_ACCOUNT="edge") as client,
    ):
        edge.set(tls_secret("web", WEB))
        await client.ask("cds")
        await client.ask("sds", "kubernetes://web")
        await edge.server.eventually(lambda: edge.server.metric(f"{FAILED} 1"))
    told = [record.getMessage() for record in caplog.records if "missing secret" in record.getMessage()]
    assert [line.partition(" requested ")[2] for line in told] == [
        "missing secret kubernetes://web (the proxy is not authenticated)"
    ]


def test_a_report_looks_at_secrets_alone() -> None:
    class Answer:
        type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

    metrics = Metrics()
    SecretReport(metrics).on_response(None, Answer())
    assert FAILED.encode() not in metrics.exposition()
