"""Workload certificates issued by Kubernetes signers."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Sequence

from cryptography import x509

from ca.errors import KeyMaterialError, SigningError
from ca.external_signer import RegistrationAuthority
from ca.pem import bundle_pem, load_bundle
from pilot.config.mesh.mesh_config import CertificateData, MeshConfig
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import KubeError
from pilot.kube.certificate_requests import SERVER_USAGES, WORKLOAD_USAGES, request_certificate
from pilot.lib.flags import FlagError
from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError
from pilot.settings.security import AuthoritySettings

KUBERNETES_API = "ISTIOD_RA_KUBERNETES_API"
ROOTS_FILE = "./etc/external-ca-cert/root-cert.pem"
API_SERVER_ROOTS_FILE = "./var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
PREFIX, SERVER_PREFIX = "csr-workload-", "csr-istiod-"
_log = scope("ca")


class ExternalSigner:
    """Requests certificates from Kubernetes signers. Raise FlagError if the settings do not name a signer.

    `roots` are the signers' roots from a mounted file. If no signer domain is set, the API server's CA file replaces a
    missing file. If `roots` is empty, the roots come from the mesh config.
    """

    def __init__(self, settings: AuthoritySettings, client: ApiClient, mesh_config: Callable[[], MeshConfig]) -> None:
        if settings.external != KUBERNETES_API:
            raise FlagError(f"EXTERNAL_CA: unknown value {settings.external!r}, expected {KUBERNETES_API}")
        if not (settings.external_signer or settings.external_domain):
            raise FlagError("EXTERNAL_CA: set K8S_SIGNER or CERT_SIGNER_DOMAIN")
        self._client, self._mesh_config = client, mesh_config
        self._files = (ROOTS_FILE,) if settings.external_domain else (ROOTS_FILE, API_SERVER_ROOTS_FILE)
        self.roots: Sequence[x509.Certificate] = ()
        self._mesh_certificates: tuple[CertificateData, ...] = ()
        longest = datetime.timedelta(seconds=settings.longest_ttl.seconds)
        self.sign = RegistrationAuthority(
            self._request, settings.external_signer, settings.external_domain, longest, self.roots_of
        ).sign
        self.on_change: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Read the roots. Raise StartError if their file is unreadable or invalid."""
        try:
            for path in filter(os.path.isfile, self._files):
                with open(path, "rb") as file:
                    self.roots = load_bundle(file.read(), path)
                break
        except (OSError, KeyMaterialError) as error:
            raise StartError(f"cannot read the roots of the external signer: {error}") from error
        self._mesh_certificates = self._mesh_config().ca_certificates
        _log.info("workload certificates are issued by Kubernetes signers")

    def on_mesh_config(self, mesh: MeshConfig) -> None:
        """Handle a change of the mesh config."""
        if mesh.ca_certificates != self._mesh_certificates:
            self._mesh_certificates = mesh.ca_certificates
            for callback in self.on_change:
                callback()

    def roots_pem(self) -> bytes:
        """Return all known roots of the signers in PEM."""
        entries = [entry for entry in self._mesh_config().ca_certificates if entry.cert_signers]
        return bundle_pem(dict.fromkeys((*self.roots, *(root for entry in entries for root in _roots(entry)))))

    def roots_of(self, signer: str) -> Sequence[x509.Certificate]:
        """Return the known roots of a signer."""
        entries = [entry for entry in self._mesh_config().ca_certificates if signer in entry.cert_signers]
        return self.roots or tuple(root for entry in entries for root in _roots(entry))

    async def _request(self, csr: bytes, signer: str, seconds: int) -> bytes:
        try:
            return await request_certificate(self._client, PREFIX, csr, signer, seconds, WORKLOAD_USAGES)
        except KubeError as error:
            raise SigningError("CERT_GEN_ERROR", str(error)) from error

    async def request_for_server(self, csr: bytes, signer: str) -> bytes:
        """Return the PEM chain of a certificate for the control plane itself. Raise SigningError if none is issued."""
        try:
            return await request_certificate(self._client, SERVER_PREFIX, csr, signer, 0, SERVER_USAGES)
        except KubeError as error:
            raise SigningError("CERT_GEN_ERROR", str(error)) from error


def _roots(entry: CertificateData) -> Sequence[x509.Certificate]:
    """Return the roots in an entry of the mesh config, or () if the entry is invalid. Validation reports invalid
    entries."""
    try:
        return load_bundle((entry.pem or "").encode(), "caCertificates") if entry.pem else ()
    except KeyMaterialError:
        return ()
