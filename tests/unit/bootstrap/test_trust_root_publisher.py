"""Publication of the authority's roots to the table that proxies' roots derive from."""

from __future__ import annotations

import datetime

from ca.authority import utc_now
from ca.pem import certificate_pem
from ca.self_signed import sign_root
from pilot.bootstrap.security.certificate_authority import CertificateAuthority
from pilot.bootstrap.security.process_security import ROW_KEY, TrustRootPublisher
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.settings.security import AuthoritySettings
from pilot.xds.push.discovery import Discovery


def make_discovery() -> Discovery:
    return Discovery(Mesh(), Metrics(), proxy_plan)


async def test_authority_roots_are_published_and_updated() -> None:
    server = make_discovery()
    authority = CertificateAuthority(AuthoritySettings(), lambda: "cluster.local", Metrics())
    await authority.start()
    try:
        await TrustRootPublisher(authority, None, server).start()
        assert authority.authority is not None
        signer = authority.authority.signer
        first = certificate_pem(signer.certificate).decode()
        assert server.db.authority_roots.peek(ROW_KEY) == (first,)
        authority.authority.renew(
            sign_root(signer.key, signer.certificate.subject, datetime.timedelta(days=9), utc_now())
        )
        (second,) = server.db.authority_roots.peek(ROW_KEY) or ()
        assert second != first
        assert second == certificate_pem(authority.authority.signer.certificate).decode()
    finally:
        await authority.stop()


async def test_no_roots_are_published_without_an_authority() -> None:
    server = make_discovery()
    await TrustRootPublisher(None, None, server).start()
    assert server.db.authority_roots.peek(ROW_KEY) == ()
