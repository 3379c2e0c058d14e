"""Certificates of workloads that signers of the API server issue, by the settings."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Sequence

from cryptography import x509

from ca.errors import KeyMaterialError, SigningError
from ca.external_signer import RegistrationAuthority
from ca.pem import bundle_pem, load_bundle
from pilot.config.mesh.mesh_config import CertificateData, MeshConfig
from pilot.kube.certificate_requests import SERVER_USAGES, WORKLOAD_USAGES, request_certificate
from pilot.kube.client import ApiClient
from pilot.kube.errors import KubeError
from pilot.lib.flags import FlagError
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.settings.security import AuthoritySettings

KUBERNETES = "ISTIOD_RA_KUBERNETES_API"
ROOTS = "./etc/external-ca-cert/root-cert.pem"
ROOTS_OF_SERVER = "./var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
PREFIX, SERVER_PREFIX = "csr-workload-", "csr-istiod-"
_log = scope("ca")


class Registration:
    """Has signers of the API server issue certificates. Their roots are those of a mounted file, else those of the API server itself where no domain
    of signers is named, both in `roots`, else those that the mesh config has for a signer. FlagError where the settings do not say who the signers
    are."""

    def __init__(self, settings: AuthoritySettings, client: ApiClient, mesh_config: Callable[[], MeshConfig]) -> None:
        if settings.external != KUBERNETES:
            raise FlagError(f"EXTERNAL_CA: {settings.external!r} is not known, only {KUBERNETES} is")
        if not (settings.external_signer or settings.external_domain):
            raise FlagError("EXTERNAL_CA: neither K8S_SIGNER nor CERT_SIGNER_DOMAIN says who issues certificates")
        self._client, self._mesh_config = client, mesh_config
        self._files = (ROOTS,) if settings.external_domain else (ROOTS, ROOTS_OF_SERVER)
        self.roots: Sequence[x509.Certificate] = ()
        self._told: tuple[CertificateData, ...] = ()
        longest = datetime.timedelta(seconds=settings.longest_ttl.seconds)
        self.sign = RegistrationAuthority(
            self._ask, settings.external_signer, settings.external_domain, longest, self.roots_of
        ).sign
        self.on_change: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Reads the roots. StartError where the file that has them is broken."""
        try:
            for path in filter(os.path.isfile, self._files):
                with open(path, "rb") as file:
                    self.roots = load_bundle(file.read(), path)
                break
        except (OSError, KeyMaterialError) as error:
            raise StartError(f"the roots of the signers: {error}") from error
        self._told = self._mesh_config().ca_certificates
        _log.info("certificates are issued by signers of the API server")

    def configured(self, mesh: MeshConfig) -> None:
        """Takes another mesh config."""
        if mesh.ca_certificates != self._told:
            self._told = mesh.ca_certificates
            for changed in self.on_change:
                changed()

    def roots_pem(self) -> bytes:
        """Returns all roots that the signers are known to have."""
        named = [one for one in self._mesh_config().ca_certificates if one.cert_signers]
        return bundle_pem(dict.fromkeys((*self.roots, *(root for one in named for root in _roots(one)))))

    def roots_of(self, signer: str) -> Sequence[x509.Certificate]:
        """Returns the roots that a signer is known to have."""
        told = [one for one in self._mesh_config().ca_certificates if signer in one.cert_signers]
        return self.roots or tuple(root for one in told for root in _roots(one))

    async def _ask(self, csr: bytes, signer: str, seconds: int) -> bytes:
        try:
            return await request_certificate(self._client, PREFIX, csr, signer, seconds, WORKLOAD_USAGES)
        except KubeError as error:
            raise SigningError("CERT_GEN_ERROR", str(error)) from error

    async def ask_for_server(self, csr: bytes, signer: str) -> bytes:
        """Returns the chain of a certificate of the control plane itself, in PEM. SigningError where there is none."""
        try:
            return await request_certificate(self._client, SERVER_PREFIX, csr, signer, 0, SERVER_USAGES)
        except KubeError as error:
            raise SigningError("CERT_GEN_ERROR", str(error)) from error


def _roots(authority: CertificateData) -> Sequence[x509.Certificate]:
    """Returns the roots in an entry of the mesh config; none of one that is broken, of which its author is told elsewhere."""
    try:
        return load_bundle((authority.pem or "").encode(), "caCertificates") if authority.pem else ()
    except KeyMaterialError:
        return ()
