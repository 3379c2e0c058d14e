"""The trust domains and root certificates of the mesh."""

from __future__ import annotations

from pilot.config.key_material import split_certificates
from pilot.config.validation.key_material import find_authority_flaw
from pilot.derive import hub
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def mesh_trust_domains(db: Mesh) -> tuple[str, ...]:
    """Return the trust domain of the mesh and its aliases."""
    mesh = mesh_config(db)
    return mesh.trust_domain, *mesh.trust_domain_aliases


@hub
def trust_domains(db: Mesh) -> tuple[str, ...]:
    """Return the trust domains that clients may have, including those of additional roots, or () if all are valid."""
    if db.settings.tls.skip_validate_trust_domain:
        return ()
    mesh = mesh_config(db)
    domains = [mesh.trust_domain, *mesh.trust_domain_aliases]
    for authority in mesh.ca_certificates:
        domains += authority.trust_domains
    return tuple(dict.fromkeys(d for d in domains if d))


def has_trust_bundle(db: Mesh) -> bool:
    """Return whether proxies receive root certificates over xDS."""
    return bool(db.authority_roots.all_keys())


@hub
def trust_bundle(db: Mesh) -> tuple[str, ...]:
    """Return the root certificates of the mesh in PEM form, sorted and without duplicates.

    They are the roots of the mesh's own certificate authorities, and the roots in the mesh config.
    """
    pems = [pem for name in db.authority_roots.all_keys() for pem in db.authority_roots.get(name) or ()]
    pems += [
        authority.pem
        for authority in mesh_config(db).ca_certificates
        if authority.pem and find_authority_flaw(authority.pem) is None
    ]
    return tuple(sorted({certificate for pem in pems for certificate in split_certificates(pem)}))
