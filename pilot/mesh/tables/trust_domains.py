"""Trust domains: whose identities the mesh accepts as its own."""

from __future__ import annotations

from pilot.derive import hub
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def own_trust_domains(db: Mesh) -> tuple[str, ...]:
    """Returns the names of the mesh's own trust domain: it, and its aliases."""
    mesh = mesh_config(db)
    return mesh.trust_domain, *mesh.trust_domain_aliases


@hub
def trust_domains(db: Mesh) -> tuple[str, ...]:
    """Returns the trust domains that clients may be of: the mesh's, its aliases, and those of its extra roots; () for any."""
    if db.settings.tls.skip_validate_trust_domain:
        return ()
    mesh = mesh_config(db)
    domains = [mesh.trust_domain, *mesh.trust_domain_aliases]
    for authority in mesh.ca_certificates:
        domains += authority.trust_domains
    return tuple(dict.fromkeys(d for d in domains if d))
