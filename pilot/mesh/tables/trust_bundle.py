"""The roots that a mesh with several trusts."""

from __future__ import annotations

from pilot.config.key_material import split_certificates
from pilot.config.validation.key_material import find_authority_flaw
from pilot.derive import hub
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


def has_several_roots(db: Mesh) -> bool:
    """Returns whether proxies are told which roots there are."""
    return bool(db.authority_roots.all_keys())


@hub
def trust_bundle(db: Mesh) -> tuple[str, ...]:
    """Returns the roots of the mesh's own authorities and those of the mesh config, each once, one certificate in PEM each, sorted."""
    pems = [pem for name in db.authority_roots.all_keys() for pem in db.authority_roots.get(name) or ()]
    pems += [
        found.pem for found in mesh_config(db).ca_certificates if found.pem and find_authority_flaw(found.pem) is None
    ]
    return tuple(sorted({one for pem in pems for one in split_certificates(pem)}))
