"""CreateCertificate: accepted callers, and errors returned to the others."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest
from cryptography import x509
from grpc import aio

from ca.authority import Authority
from ca.service import LARGEST_REQUEST, SERVICE, CallerDisconnected, CallerPostponed, CallerRefused, CertificateService
from pilot.lib.metrics.metrics import Metrics
from protos import ca_pb2
from testing.security.certificates import DAY, IDENTITY, NOW, csr, root

REASONS = {  # only in the log
    "TTL_ERROR": "the requested lifetime of 7776001 s exceeds 7776000 s",
    "CSR_ERROR": "cannot decode the request: ",
    "CA_NOT_READY": "unknown signer 'another': only the mesh's own signer is configured",
    "CERT_GEN_ERROR": "cannot issue a certificate for ('spiffe://clüster/ns/shop/sa/web',): ",
}
NODE = "spiffe://cluster.local/ns/istio-system/sa/ztunnel"


class RecordedEvents:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.metrics = Metrics()
        self.calls = self.metrics.calls

    def csr_received(self) -> None:
        self.events.append("received")

    def csr_unauthenticated(self) -> None:
        self.events.append("unauthenticated")

    def csr_failed(self, code: str) -> None:
        self.events.append(code)

    def csr_signed(self) -> None:
        self.events.append("signed")


async def authenticate(context: Any) -> Sequence[str]:
    token = dict(context.invocation_metadata()).get("authorization", "")
    if token == "gone":
        raise CallerDisconnected("the caller has closed its connection")
    if not token:
        raise CallerRefused("the reason with a secret in it")
    return (token,)


async def impersonate(context: Any, identity: str) -> None:
    if await authenticate(context) != (NODE,) or not identity.endswith("/web"):
        raise CallerRefused("the reason with a secret in it")


class Client:
    def __init__(self, channel: Any, recorder: RecordedEvents) -> None:
        self._call: Any = channel.unary_unary(f"/{SERVICE}/CreateCertificate")
        self.recorder = recorder

    async def create(self, token: str = IDENTITY, raw: bytes | None = None, **fields: Any) -> list[str]:
        request = ca_pb2.IstioCertificateRequest(csr=csr().decode())
        request.validity_duration = fields.pop("seconds", 60)
        request.metadata.update(fields)
        metadata = (("authorization", token),) if token else ()
        answer = await self._call(request.SerializeToString() if raw is None else raw, metadata=metadata)
        return list(ca_pb2.IstioCertificateResponse.FromString(answer).cert_chain)

    async def call_error(self, **arguments: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(aio.AioRpcError) as caught:
            await self.create(**arguments)
        return caught.value.code(), caught.value.details() or ""


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    recorder = RecordedEvents()
    authority = Authority(root(), DAY, 90 * DAY, lambda: NOW)
    server = aio.server()

    async def sign(csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        if signer == "busy":
            raise CallerPostponed("others are waiting")
        return await authority.answer(csr, identities, seconds, signer)

    server.add_generic_rpc_handlers((CertificateService(sign, authenticate, recorder, impersonate).handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Client(channel, recorder)
    await server.stop(None)


def identities(chain: list[str]) -> list[str]:
    leaf = x509.load_pem_x509_certificate(chain[0].encode())
    return leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.UniformResourceIdentifier
    )


async def test_caller_gets_a_certificate_for_its_identity(client: Client) -> None:
    chain = await client.create(seconds=3600)
    assert identities(chain) == [IDENTITY]
    assert x509.load_pem_x509_certificate(chain[0].encode()).not_valid_after_utc == NOW + datetime.timedelta(hours=1)
    assert client.recorder.events == ["received", "signed"]


async def test_unauthenticated_caller_gets_no_reason(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    assert await client.call_error(token="") == (grpc.StatusCode.UNAUTHENTICATED, "request authenticate failure")
    assert client.recorder.events == ["received", "unauthenticated"]
    assert caplog.record_tuples == [
        ("pilot.serverca", logging.WARNING, "request authenticate failure: the reason with a secret in it")
    ]


async def test_disconnected_caller_is_not_reported(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    assert await client.call_error(token="gone") == (grpc.StatusCode.CANCELLED, "disconnected")
    assert client.recorder.events == ["received"]
    assert caplog.messages == []


async def test_only_a_node_proxy_may_impersonate_a_workload(client: Client) -> None:
    assert identities(await client.create(token=NODE, ImpersonatedIdentity=IDENTITY)) == [IDENTITY]
    error = (grpc.StatusCode.UNAUTHENTICATED, "request impersonation authentication failure")
    assert await client.call_error(ImpersonatedIdentity=NODE) == error
    assert await client.call_error(token=NODE, ImpersonatedIdentity="spiffe://cluster.local/ns/bank/sa/admin") == error
    assert client.recorder.events[-2:] == ["received", "unauthenticated"]


async def test_large_message_is_rejected_before_its_caller_waits_for_authentication(client: Client) -> None:
    large = ca_pb2.IstioCertificateRequest(csr="x" * LARGEST_REQUEST).SerializeToString()
    assert await client.call_error(token="", raw=large) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        f"the request has {len(large)} bytes; at most 65536 are allowed",
    )
    assert client.recorder.events == ["received"]


async def test_postponed_request_is_reported_as_exhausted(client: Client) -> None:
    assert await client.call_error(CertSigner="busy") == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "too many requests are waiting",
    )
    assert client.recorder.events == ["received", "CA_NOT_READY"]


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ({"seconds": 90 * 86400 + 1}, grpc.StatusCode.INVALID_ARGUMENT, "TTL_ERROR"),
        (
            {"raw": ca_pb2.IstioCertificateRequest(csr="nothing").SerializeToString()},
            grpc.StatusCode.INVALID_ARGUMENT,
            "CSR_ERROR",
        ),
        ({"raw": b""}, grpc.StatusCode.INVALID_ARGUMENT, "CSR_ERROR"),
        ({"CertSigner": "another"}, grpc.StatusCode.INTERNAL, "CA_NOT_READY"),
        (
            {"token": NODE, "ImpersonatedIdentity": "spiffe://clüster/ns/shop/sa/web"},
            grpc.StatusCode.INTERNAL,
            "CERT_GEN_ERROR",
        ),
    ],
    ids=["too long", "no request", "empty", "other signer", "no name"],
)
async def test_failed_request_returns_only_the_error_code(
    client: Client, arguments: dict[str, Any], status: grpc.StatusCode, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await client.call_error(**arguments) == (status, f"CSR signing error ({code})")
    assert client.recorder.events == ["received", code]
    identity = arguments.get("ImpersonatedIdentity", IDENTITY)
    assert [(name, level) for name, level, _ in caplog.record_tuples] == [("pilot.serverca", logging.ERROR)]
    assert caplog.messages[0].startswith(f"CSR signing error for {identity}: {REASONS[code]}")


async def test_malformed_message_is_an_invalid_argument(client: Client) -> None:
    assert await client.call_error(raw=b"\xff\xff\xff") == (grpc.StatusCode.INVALID_ARGUMENT, "malformed request")


async def test_grpc_server_metrics(client: Client) -> None:
    await client.create()
    await client.call_error(token="")
    labels = f'grpc_method="CreateCertificate",grpc_service="{SERVICE}",grpc_type="unary"'
    text = ""
    while (
        f"grpc_server_handling_seconds_count{{{labels}}} 2" not in text
    ):  # the response may arrive before the call is recorded
        await asyncio.sleep(0)
        text = client.recorder.metrics.exposition().decode()
    assert f"grpc_server_started_total{{{labels}}} 2" in text
    assert f'grpc_server_handled_total{{grpc_code="OK",{labels}}} 1' in text
    assert f'grpc_server_handled_total{{grpc_code="Unauthenticated",{labels}}} 1' in text
    assert f"grpc_server_msg_sent_total{{{labels}}} 1" in text
