"""Certificates that a signer of a cluster issues.

https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from pilot.kube.client import ApiClient
from pilot.kube.errors import Conflict, KubeError, Status, error_from_status
from pilot.kube.wire import read_event

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SERVER_USAGES = ("digital signature", "key encipherment", "server auth")
WORKLOAD_USAGES = (*SERVER_USAGES, "client auth")
ISSUE_TIMEOUT = 60.0
"""Time in which a signer must have issued a certificate."""
WATCH_RETRY_DELAY = 0.1
"""Seconds after which a watch that has ended is begun again."""
_APPROVED = {
    "type": "Approved",
    "status": "True",
    "reason": "IstioRegistrationAuthority",
    "message": "whoever asks has proved that identity",
}


class CertificateRequestError(KubeError):
    """The signer refuses a request, or has not answered it in time."""


class _Condition(msgspec.Struct):
    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""


class _RequestStatus(msgspec.Struct):
    certificate: bytes = b""
    conditions: tuple[_Condition, ...] = ()


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str = ""


class _SigningRequest(msgspec.Struct):
    metadata: _Metadata
    status: _RequestStatus = msgspec.field(default_factory=_RequestStatus)


async def request_certificate(
    client: ApiClient, prefix: str, csr: bytes, signer: str, seconds: int, usages: Sequence[str]
) -> bytes:
    """Returns the chain in PEM that a signer issues for a request in PEM, which is approved here; `seconds` of life, 0 for as many as the signer
    likes. NotIssued or another KubeError where there is none. The object, whose name begins with `prefix`, is taken away in the end."""
    life = {"expirationSeconds": seconds} if seconds > 0 else {}
    spec = {"request": base64.b64encode(csr).decode(), "signerName": signer, "usages": usages, **life}
    made = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": prefix},
        "spec": spec,
    }
    answer = await client.call("POST", PATH, body=msgspec.json.encode(made))
    name = msgspec.json.decode(answer, type=_SigningRequest).metadata.name
    try:
        async with asyncio.timeout(ISSUE_TIMEOUT):
            await _approve(client, name, answer)
            return await _wait_for_certificate(client, name)
    except TimeoutError:
        raise CertificateRequestError(f"{signer} has not answered {name} within {ISSUE_TIMEOUT:.0f} s") from None
    finally:
        with contextlib.suppress(KubeError):
            await client.call("DELETE", f"{PATH}/{name}")


async def _approve(client: ApiClient, name: str, raw: bytes) -> None:
    """Approves a request; where somebody else has changed it meanwhile, as it is now."""
    while True:
        plain: Any = msgspec.json.decode(raw)
        status = plain.setdefault("status", {})
        status["conditions"] = [
            *(one for one in status.get("conditions") or () if one["type"] != "Approved"),
            _APPROVED,
        ]
        try:
            await client.call("PUT", f"{PATH}/{name}/approval", body=msgspec.json.encode(plain))
            return
        except Conflict:
            raw = await client.call("GET", f"{PATH}/{name}")


async def _wait_for_certificate(client: ApiClient, name: str) -> bytes:
    """Returns the certificate as soon as it is there. NotIssued where the request is refused."""
    while True:
        found = msgspec.json.decode(await client.call("GET", f"{PATH}/{name}"), type=_SigningRequest)
        if certificate := _certificate(found):
            return certificate
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": found.metadata.resource_version,
        }
        async with contextlib.aclosing(client.lines(PATH, query)) as batches:
            async for lines in batches:
                for line in filter(None, lines):
                    if certificate := _certificate_of_event(line):
                        return certificate
        await asyncio.sleep(WATCH_RETRY_DELAY)


def _certificate_of_event(line: bytes) -> bytes:
    """Returns the certificate of which a line of a watch tells; none where there is none yet."""
    event = read_event(line)
    if event.type == "ERROR":
        raise error_from_status(msgspec.json.decode(event.object, type=Status))
    if event.type == "DELETED":
        raise CertificateRequestError("the request is gone before it was answered")
    return _certificate(msgspec.json.decode(event.object, type=_SigningRequest)) if event.type != "BOOKMARK" else b""


def _certificate(found: _SigningRequest) -> bytes:
    """Returns the certificate of a request, none where there is none yet. NotIssued where the request is refused."""
    for condition in found.status.conditions:
        if condition.type in ("Denied", "Failed") and condition.status == "True":
            raise CertificateRequestError(
                f"{found.metadata.name}: {condition.type}: {condition.reason}: {condition.message}"
            )
    return found.status.certificate
