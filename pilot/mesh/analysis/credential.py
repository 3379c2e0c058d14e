"""Checks the credentials that an object refers to.

They must exist, the proxies that use them must be allowed to read them, and Envoy must accept them.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable

from pilot.config.key_material import Flaw, KeyPair, Roots, certificate_blocks
from pilot.config.kinds.kubernetes import SECRET
from pilot.config.object import RegistryKey
from pilot.config.problem import Problems, error, warning
from pilot.config.validation.key_material import find_staple_flaw, validity_period
from pilot.derive import derived
from pilot.mesh.model.credential_key import CredentialKey, parse_field
from pilot.mesh.tables.clock import current_time
from pilot.mesh.tables.credentials import credential, secret_namespaces
from pilot.mesh.tables.database import Mesh

SOON = 7 * 86_400.0
"""Number of seconds before the end of a certificate from which it is reported."""
_MAX_NAMESPACES = 3
"""Maximum number of namespaces with a Secret that a problem names. The one that is meant is not obvious among more."""
_ELSEWHERE = ("sds://", "builtin://", "invalid://")
"""URL schemes of credentials that the control plane does not provide."""


def check_credential(db: Mesh, path: str, text: str, namespaces: Iterable[str], roots: bool) -> Problems:
    """Yield the problems of a credential that proxies in `namespaces` use. `roots` says that the credential verifies
    peers."""
    if text.startswith(_ELSEWHERE):
        return
    missing: dict[CredentialKey, list[str]] = {}
    for namespace in sorted(set(namespaces)):
        name = parse_field(text, namespace)
        if name is None:
            yield warning("bad-credential-name", path, f"{text!r} is not the name of a Secret or ConfigMap")
            return
        if name.source != "ConfigMap" and name.namespace != namespace:
            yield warning(
                "credential-not-found",
                path,
                f"proxies in namespace {namespace} cannot read Secrets in namespace {name.namespace}",
            )
            continue
        material = find_credential(db, name, roots)
        if material is None:
            missing.setdefault(name._replace(namespace=""), []).append(name.namespace)
        else:
            yield from check_material(db, path, name, material)
    for name, where in missing.items():
        yield warning(
            "credential-not-found",
            path,
            f"{kind_name(name)} {name.names[-1]} not found in namespace {', '.join(where)}"
            f"{_secret_elsewhere(db, name)}",
        )


def _secret_elsewhere(db: Mesh, name: CredentialKey) -> str:
    """Return where a Secret is that proxies do not find in their own namespace, or ""."""
    places = namespaces_with(db, *name.names) if name.source != "ConfigMap" else ""
    return (
        f"; it is in namespace {places}, but proxies read Secrets only in their own: create it there" if places else ""
    )


def namespaces_with(db: Mesh, *names: str) -> str:
    """Return the namespaces that have a Secret with one of the names, or "" if none or too many have one."""
    namespaces = secret_namespaces(db, *names)
    return " and ".join(namespaces) if len(namespaces) <= _MAX_NAMESPACES else ""


def find_credential(db: Mesh, name: CredentialKey, roots: bool) -> KeyPair | Roots | Flaw | None:
    """Return a valid credential from any cluster.

    If no valid one exists, return the flaw of an invalid one, or None if no cluster has the object.
    """
    clusters = (
        {key.cluster for one in name.names for key in _secrets(db, name.namespace, one)}
        if name.source == "Secret"
        else set()
    )
    candidates = [
        material
        for cluster in sorted(clusters) or [db.settings.registry.cluster_id]
        if (material := credential(db, name, cluster, roots)) is not None
    ]
    return next((one for one in candidates if not isinstance(one, Flaw)), candidates[0] if candidates else None)


def _secrets(db: Mesh, namespace: str, name: str) -> tuple[RegistryKey, ...]:
    return SECRET.keys(db, "named", (namespace, name))


def check_material(db: Mesh, path: str, name: CredentialKey, material: KeyPair | Roots | Flaw) -> Problems:
    """Yield a problem if an existing credential is invalid, or if it has expired or expires soon."""
    flaw = (
        material
        if isinstance(material, Flaw)
        else find_staple_flaw(material)
        if isinstance(material, KeyPair)
        else None
    )
    if flaw is not None:
        yield warning(
            "credential-unusable",
            path,
            f"{flaw.path} of {kind_name(name)} {name.namespace}/{flaw.object or name.name} {flaw.reason}",
        )
    if isinstance(material, Flaw):
        return
    roots = isinstance(material, Roots)
    expiry = _expiry(db, (material.certificates if isinstance(material, Roots) else material.chain).content, roots)
    if expiry is not None:
        is_expired, text = expiry
        report, code = (error, "certificate-expired") if is_expired else (warning, "certificate-expires-soon")
        yield report(code, path, f"the certificate of {kind_name(name)} {name.namespace}/{name.names[-1]} {text}")


def _expiry(db: Mesh, pem: bytes, roots: bool) -> tuple[bool, str] | None:
    """Return whether a credential has expired, and the text about it, or None if it does not expire soon.

    The result is None if the time is unknown.
    """
    end = _end(pem, roots)
    if math.isinf(end):
        return None
    state = _expiry_state(db, int(end))
    if not state:
        return None
    text = datetime.datetime.fromtimestamp(end, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    if state == "expired":
        return True, f"expired on {text}, so peers that verify it refuse connections"
    return False, f"expires on {text}, in less than 7 days"


@derived
def _expiry_state(db: Mesh, end: int) -> str:
    """Return "expired", "soon" or "" for a time in Unix seconds. Checks are repeated only if this changes."""
    now = current_time(db)
    if now is None or end > now + SOON:
        return ""
    return "expired" if end <= now else "soon"


def _end(pem: bytes, roots: bool) -> float:
    """Return when a chain's first certificate expires, or the last of several roots. The result is a Unix time."""
    periods = [validity_period(block) for block in (certificate_blocks(pem) if roots else (pem,))]
    return max((period.ends for period in periods if period is not None), default=math.inf)


def kind_name(name: CredentialKey) -> str:
    """Return the kind of object that stores a credential."""
    return "ConfigMap" if name.source == "ConfigMap" else "Secret"
