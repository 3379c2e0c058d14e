"""Kubernetes signers, which issue certificates for approved CertificateSigningRequests."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping
from typing import Any

from cryptography import x509

from ca.csr import decode_csr
from ca.pem import bundle_pem
from ca.signer import Signer
from testing.apiserver.server import ApiServer
from testing.apiserver.store import Event, Plain

REQUESTS = ("certificates.k8s.io", "certificatesigningrequests")
DAY = datetime.timedelta(days=1)


class Signers:
    """Issues certificates for requests, by signer name.

    `approved` are the specs of approved requests. With `denies`, pending requests are denied.
    """

    def __init__(self, server: ApiServer, signers: Mapping[str, Signer], denies: bool = False) -> None:
        self._server, self._signers, self._denies = server, signers, denies
        self.approved: list[Plain] = []
        server.store.on_change.append(self._changed)

    def _changed(self, resource: tuple[str, str], event: Event) -> None:
        if resource != REQUESTS or event.after is None:
            return
        plain = event.after.plain
        status: dict[str, Any] = plain.get("status") or {}
        conditions = status.get("conditions") or []
        if self._denies and not conditions:
            denial = {"type": "Denied", "status": "True", "reason": "Policy", "message": "not here"}
            self._server.store.put(REQUESTS, {**plain, "status": {"conditions": [denial]}})
        elif (
            [condition["type"] for condition in conditions] == ["Approved"]
            and "certificate" not in status
            and plain["spec"]["signerName"] in self._signers
        ):
            self.approved.append(plain["spec"])
            self._server.store.put(REQUESTS, {**plain, "status": {**status, "certificate": self._issue(plain["spec"])}})

    def _issue(self, spec: Plain) -> str:
        signer, pem = self._signers[spec["signerName"]], base64.b64decode(spec["request"])
        names = x509.load_pem_x509_csr(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        lifetime = datetime.timedelta(seconds=spec["expirationSeconds"]) if "expirationSeconds" in spec else DAY
        identities = [
            *names.get_values_for_type(x509.UniformResourceIdentifier),
            *names.get_values_for_type(x509.DNSName),
        ]
        leaf = signer.issue(decode_csr(pem), identities, lifetime, datetime.datetime.now(datetime.UTC))
        return base64.b64encode(bundle_pem((leaf, *signer.intermediates))).decode()
