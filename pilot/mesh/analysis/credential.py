"""Credentials that an object names: they have to be there, be readable by the proxies that are to use them, and be something that Envoy takes."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.config.key_material import Flaw, KeyPair, Roots
from pilot.config.kinds.kubernetes import SECRET
from pilot.config.object import RegistryKey
from pilot.config.problem import Problems, warning
from pilot.config.validation.key_material import find_staple_flaw
from pilot.mesh.model.credential_key import CredentialKey, parse_field
from pilot.mesh.tables.credentials import credential
from pilot.mesh.tables.database import Mesh

_ELSEWHERE = ("sds://", "builtin://", "invalid://")
"""What these name does not come from the control plane."""


def check_credential(db: Mesh, path: str, text: str, namespaces: Iterable[str], roots: bool) -> Problems:
    """Yields the problems of a credential that a field names, for proxies of some namespaces; `roots`: it verifies peers."""
    if text.startswith(_ELSEWHERE):
        return
    missing: dict[CredentialKey, list[str]] = {}
    for namespace in sorted(set(namespaces)):
        name = parse_field(text, namespace)
        if name is None:
            yield warning("bad-credential-name", path, f"{text!r} names no Secret and no ConfigMap")
            return
        if name.source != "ConfigMap" and name.namespace != namespace:
            yield warning(
                "credential-not-found",
                path,
                f"proxies in namespace {namespace} do not get Secrets of namespace {name.namespace}",
            )
            continue
        found = find_credential(db, name, roots)
        if found is None:
            missing.setdefault(name._replace(namespace=""), []).append(name.namespace)
        else:
            yield from check_found(path, name, found)
    for name, where in missing.items():
        yield warning(
            "credential-not-found",
            path,
            f"there is no {shown_kind(name)} {name.names[-1]} in namespace {', '.join(where)}",
        )


def find_credential(db: Mesh, name: CredentialKey, roots: bool) -> KeyPair | Roots | Flaw | None:
    """Returns the credential of a name in whichever cluster: one that serves, else what is wrong, None where there is no such object."""
    clusters = (
        {key.cluster for one in name.names for key in _secrets(db, name.namespace, one)}
        if name.source == "Secret"
        else set()
    )
    found = [credential(db, name, cluster, roots) for cluster in sorted(clusters) or [db.settings.registry.cluster_id]]
    there = [one for one in found if one is not None]
    return next((one for one in there if not isinstance(one, Flaw)), there[0] if there else None)


def _secrets(db: Mesh, namespace: str, name: str) -> tuple[RegistryKey, ...]:
    return SECRET.keys(db, "named", (namespace, name))


def check_found(path: str, name: CredentialKey, found: KeyPair | Roots | Flaw) -> Problems:
    """Yields what is wrong with a credential that is there."""
    flaw = found if isinstance(found, Flaw) else find_staple_flaw(found) if isinstance(found, KeyPair) else None
    if flaw is not None:
        yield warning(
            "credential-unusable",
            path,
            f"{flaw.path} of {shown_kind(name)} {name.namespace}/{flaw.object or name.name} {flaw.reason}",
        )


def shown_kind(name: CredentialKey) -> str:
    return "ConfigMap" if name.source == "ConfigMap" else "Secret"
