"""What policies of backends say of TLS: the roots that servers are verified by, and the names that they may have."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.gateway_api.backend import BackendTLSPolicyValidation
from pilot.config.group_kind import GroupKind
from pilot.config.key_material import Flaw
from pilot.config.kinds.kubernetes import CONFIG_MAP, SECRET
from pilot.mesh.model.condition import Fault
from pilot.mesh.model.credential_key import CONFIG_MAP_PREFIX, CredentialKey
from pilot.mesh.tables.credentials import credential
from pilot.mesh.tables.database import Mesh

NO_CREDENTIAL = "invalid://"
"""A credential that there is never, so that nothing gets through."""


class ServerRoots(NamedTuple):
    """The credential that servers are verified by, "" for the system's roots, and what is wrong with it."""

    credential: str = ""
    resolved: Fault | None = None
    accepted: Fault | None = None


def subject_names(validation: BackendTLSPolicyValidation) -> tuple[str, ...]:
    """Returns the names of which a server's certificate must have one, beside the host name."""
    return tuple(
        name
        for one in validation.subject_alt_names
        if (name := {"Hostname": one.hostname, "URI": one.uri}.get(one.type))
    )


def find_roots(db: Mesh, validation: BackendTLSPolicyValidation, namespace: str) -> ServerRoots:
    """Returns the roots by which a policy verifies servers. No node of its own."""
    if validation.well_known_ca_certificates is not None:
        known = validation.well_known_ca_certificates == "System"
        fault = (
            None
            if known
            else Fault("Invalid", f"Unknown wellKnownCACertificates: {validation.well_known_ca_certificates}")
        )
        return ServerRoots(accepted=fault)
    if not validation.ca_certificate_refs:
        return ServerRoots()
    ref = validation.ca_certificate_refs[0]
    kind = GroupKind(ref.group, ref.kind)
    if kind != CONFIG_MAP.id:
        what = f"unsupported reference kind: {ref.kind}" if kind == SECRET.id else f"unsupported kind {ref.kind}"
        return _unusable("InvalidKind", f"Certificate reference invalid: {what}")
    found = credential(db, CredentialKey("ConfigMap", namespace, ref.name), db.settings.registry.cluster_id, True)
    if found is None:
        return _unusable(
            "InvalidCACertificateRef", f"Certificate reference not found: {namespace}/{ref.name} (of kind {ref.kind})"
        )
    if isinstance(found, Flaw):
        return _unusable("InvalidCACertificateRef", f"Certificate invalid: {found.path} {found.reason}")
    return ServerRoots(f"{CONFIG_MAP_PREFIX}{namespace}/{ref.name}")


def _unusable(reason: str, message: str) -> ServerRoots:
    return ServerRoots(NO_CREDENTIAL, Fault(reason, message), Fault("NoValidCACertificate", message))
