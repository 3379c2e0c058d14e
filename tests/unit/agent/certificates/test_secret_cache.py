"""Cache of the secrets for Envoy."""

from __future__ import annotations

import datetime

from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from pilot.agent.certificates.secret_cache import CachedSecret, SecretCache, build_certificate_secret, build_root_secret
from pilot.agent.certificates.workload_certificate import WorkloadCertificate

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


DAY = datetime.timedelta(days=1)


CERTIFICATE = WorkloadCertificate(b"chain", b"key", b"roots", NOW, NOW + DAY)


def test_watchers_wake_only_on_changes() -> None:
    secrets = SecretCache()
    event, unwatched = secrets.watch(), secrets.watch()
    secrets.unwatch(unwatched)
    assert secrets.get("a") is None
    assert secrets.put(build_root_secret("a", b"roots", b"list"))
    assert (event.is_set(), unwatched.is_set()) == (True, False)
    event.clear()
    assert not secrets.put(build_root_secret("a", b"roots", b"list"))
    assert not event.is_set()
    assert secrets.put(build_root_secret("a", b"roots"))
    assert secrets.put(build_certificate_secret("b", b"chain", b"key"))
    stored = secrets.get("a"), secrets.get("b")
    assert [secret.version for secret in stored if isinstance(secret, CachedSecret)] == [2, 3]


def test_encoding_of_secrets() -> None:
    root_secret = build_root_secret("a", b"roots", b"list")
    assert root_secret == secret_pb2.Secret(
        name="a", validation_context={"trusted_ca": {"inline_bytes": b"roots"}, "crl": {"inline_bytes": b"list"}}
    )
    assert not build_root_secret("a", b"roots").validation_context.HasField("crl")
    secrets = SecretCache()
    secrets.put_certificate(CERTIFICATE)
    assert (secrets.get("ROOTCA"), secrets.get("default")) == (
        CachedSecret(1, build_root_secret("ROOTCA", b"roots").SerializeToString(deterministic=True)),
        CachedSecret(2, build_certificate_secret("default", b"chain", b"key").SerializeToString(deterministic=True)),
    )
