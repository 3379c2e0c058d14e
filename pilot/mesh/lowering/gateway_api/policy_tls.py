"""Root certificates and subject names with which backend policies verify servers."""

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
"""A credential that never exists, so that all connections fail."""


class ServerRoots(NamedTuple):
    """The credential with the root certificates, and its faults. The credential is "" for the system's roots."""

    credential: str = ""
    resolved: Fault | None = None
    accepted: Fault | None = None


def subject_names(validation: BackendTLSPolicyValidation) -> tuple[str, ...]:
    """Return the subject names of a policy. The certificate of a server must contain one of them."""
    return tuple(
        name
        for subject in validation.subject_alt_names
        if (name := {"Hostname": subject.hostname, "URI": subject.uri}.get(subject.type))
    )


def find_roots(db: Mesh, validation: BackendTLSPolicyValidation, namespace: str) -> ServerRoots:
    """Return the root certificates with which a policy verifies servers. Not memoised."""
    if validation.well_known_ca_certificates is not None:
        is_system = validation.well_known_ca_certificates == "System"
        fault = (
            None
            if is_system
            else Fault("Invalid", f"Unknown wellKnownCACertificates: {validation.well_known_ca_certificates}")
        )
        return ServerRoots(accepted=fault)
    if not validation.ca_certificate_refs:
        return ServerRoots()
    ref = validation.ca_certificate_refs[0]
    kind = GroupKind(ref.group, ref.kind)
    if kind != CONFIG_MAP.id:
        problem = f"unsupported reference kind: {ref.kind}" if kind == SECRET.id else f"unsupported kind {ref.kind}"
        return _unusable("InvalidKind", f"Certificate reference invalid: {problem}")
    material = credential(db, CredentialKey("ConfigMap", namespace, ref.name), db.settings.registry.cluster_id, True)
    if material is None:
        return _unusable(
            "InvalidCACertificateRef", f"Certificate reference not found: {namespace}/{ref.name} (of kind {ref.kind})"
        )
    if isinstance(material, Flaw):
        return _unusable("InvalidCACertificateRef", f"Certificate invalid: {material.path} {material.reason}")
    return ServerRoots(f"{CONFIG_MAP_PREFIX}{namespace}/{ref.name}")


def _unusable(reason: str, message: str) -> ServerRoots:
    return ServerRoots(NO_CREDENTIAL, Fault(reason, message), Fault("NoValidCACertificate", message))
