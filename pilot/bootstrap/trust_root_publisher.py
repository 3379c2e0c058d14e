"""The roots of the authority, and of signers elsewhere, are put where proxies are told of them, in a mesh that may have several."""

from __future__ import annotations

from ca.pem import certificate_pem
from pilot.bootstrap.certificate_authority import CertificateAuthority
from pilot.bootstrap.external_signer import Registration
from pilot.xds.discovery import Discovery

OWN = "authority"


class ToldRoots:
    """Keeps the row of `Mesh.authority_roots` of this process. Without an authority the mesh config alone says which roots there are."""

    def __init__(
        self, authority: CertificateAuthority | None, registration: Registration | None, discovery: Discovery
    ) -> None:
        self._authority, self._registration, self._discovery = authority, registration, discovery

    async def start(self) -> None:
        """Takes the roots of now, and follows them."""
        if self._authority is not None:
            self._authority.on_change.append(self._tell)
        self._tell()

    def _tell(self) -> None:
        issuing = self._authority.authority if self._authority is not None else None
        own = issuing.signer.roots if issuing is not None else ()
        others = self._registration.roots if self._registration is not None else ()
        roots = tuple(certificate_pem(root).decode() for root in dict.fromkeys((*own, *others)))
        self._discovery.commit([(self._discovery.db.authority_roots, OWN, roots)], {"global": 1})
