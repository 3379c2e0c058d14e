"""Requests certificates from a Kubernetes signer.

https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import Conflict, KubeError, Status, error_from_status
from pilot.kube.list_watch import read_event

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SERVER_USAGES = ("digital signature", "key encipherment", "server auth")
WORKLOAD_USAGES = (*SERVER_USAGES, "client auth")
ISSUE_TIMEOUT = 60.0
"""Number of seconds within which the signer must issue a certificate."""
WATCH_RETRY_DELAY = 0.1
"""Number of seconds between the end of a watch and the start of the next one."""
_APPROVED = {
    "type": "Approved",
    "status": "True",
    "reason": "IstioRegistrationAuthority",
    "message": "the requester has authenticated as this identity",
}


class CertificateRequestError(KubeError):
    """The signer denied a request, or did not complete it in time."""


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
    """Create and approve a CertificateSigningRequest, and return the issued chain. Both the CSR and the chain are PEM.

    `seconds` is the requested lifetime, or 0 to let the signer choose it. The object's name starts with `prefix`, and
    the object is deleted afterwards. Raise CertificateRequestError or another KubeError if no certificate is issued.
    """
    expiration = {"expirationSeconds": seconds} if seconds > 0 else {}
    spec = {"request": base64.b64encode(csr).decode(), "signerName": signer, "usages": usages, **expiration}
    plain = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": prefix},
        "spec": spec,
    }
    created = await client.call("POST", PATH, body=msgspec.json.encode(plain))
    name = msgspec.json.decode(created, type=_SigningRequest).metadata.name
    try:
        async with asyncio.timeout(ISSUE_TIMEOUT):
            await _approve(client, name, created)
            return await _wait_for_certificate(client, name)
    except TimeoutError:
        raise CertificateRequestError(f"{signer} did not complete {name} within {ISSUE_TIMEOUT:.0f} s") from None
    finally:
        with contextlib.suppress(KubeError):
            await client.call("DELETE", f"{PATH}/{name}")


async def _approve(client: ApiClient, name: str, raw: bytes) -> None:
    """Approve a request. After a conflict, read the latest version of the object and try again."""
    while True:
        plain: Any = msgspec.json.decode(raw)
        status = plain.setdefault("status", {})
        status["conditions"] = [
            *(condition for condition in status.get("conditions") or () if condition["type"] != "Approved"),
            _APPROVED,
        ]
        try:
            await client.call("PUT", f"{PATH}/{name}/approval", body=msgspec.json.encode(plain))
            return
        except Conflict:
            raw = await client.call("GET", f"{PATH}/{name}")


async def _wait_for_certificate(client: ApiClient, name: str) -> bytes:
    """Wait until the certificate is issued, and return it. Raise CertificateRequestError if the request is denied."""
    while True:
        request = msgspec.json.decode(await client.call("GET", f"{PATH}/{name}"), type=_SigningRequest)
        if certificate := _certificate(request):
            return certificate
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": request.metadata.resource_version,
        }
        async with contextlib.aclosing(client.lines(PATH, query)) as batches:
            async for lines in batches:
                for line in filter(None, lines):
                    if certificate := _certificate_of_event(line):
                        return certificate
        await asyncio.sleep(WATCH_RETRY_DELAY)


def _certificate_of_event(line: bytes) -> bytes:
    """Return the certificate in a watch event, or b"" if it is not issued yet."""
    event = read_event(line)
    if event.type == "ERROR":
        raise error_from_status(msgspec.json.decode(event.object, type=Status))
    if event.type == "DELETED":
        raise CertificateRequestError("the request was deleted before the certificate was issued")
    return _certificate(msgspec.json.decode(event.object, type=_SigningRequest)) if event.type != "BOOKMARK" else b""


def _certificate(request: _SigningRequest) -> bytes:
    """Return the issued certificate, or b"" if there is none yet. Raise CertificateRequestError if the request was
    denied."""
    for condition in request.status.conditions:
        if condition.type in ("Denied", "Failed") and condition.status == "True":
            raise CertificateRequestError(
                f"{request.metadata.name}: {condition.type}: {condition.reason}: {condition.message}"
            )
    return request.status.certificate
