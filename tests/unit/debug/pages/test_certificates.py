"""The list of certificates that the control plane knows."""

from __future__ import annotations

from typing import Any

from pilot.debug.pages.certificates import certificatez
from testing.mesh.debug_server import sources
from testing.mesh.objects import make, pod, world
from testing.security.credentials import Authority, tls_secret

AUTHORITY = Authority()
SERVER = (
    "{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.com], tls: {mode: SIMPLE, credentialName: cert}}"
)


async def listed(*objects: Any) -> list[tuple[str, list[str]]]:
    """Return the names of the certificates, and their users."""
    page: list[dict[str, Any]] = await certificatez(sources(world(*objects).mesh), {})
    return [(one["name"], one["usedBy"]) for one in page]


async def test_secrets_are_listed_with_the_gateways_that_refer_to_them() -> None:
    gateway = make("Gateway", "gw", f"{{selector: {{istio: ingress}}, servers: [{SERVER}]}}", "a")
    router = pod("edge-0", "10.1.0.9", namespace="edge", labels="{istio: ingress}")
    used, other = (tls_secret(name, AUTHORITY.issue("x.com")) for name in ("cert", "other"))
    assert await listed(gateway, router, used, other) == [
        ("Secret edge/cert", ["Gateway a/gw"]),
        ("Secret edge/other", []),
    ]


async def test_validity_is_in_unix_seconds_and_no_key_is_shown() -> None:
    issued = AUTHORITY.issue("x.com")
    (one,) = await certificatez(sources(world(tls_secret("cert", issued)).mesh), {})
    assert one == {
        "name": "Secret edge/cert",
        "begins": issued.certificate.not_valid_before_utc.timestamp(),
        "ends": issued.certificate.not_valid_after_utc.timestamp(),
        "usedBy": [],
    }
