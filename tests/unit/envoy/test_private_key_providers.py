"""Private key providers of TLS certificates."""

from __future__ import annotations

import pytest
from envoy.config.core.v3 import base_pb2
from google.protobuf import duration_pb2
from msgspec.structs import replace

from pilot.debug.pages.config_dump import plain
from pilot.envoy.resource import Resource, length_delimited
from pilot.lib.xds_types import SECRET
from testing.mesh.objects import world
from testing.mesh.world import World
from testing.security.credentials import Authority, edge_router, served_secret, tls_secret

WEB = Authority().issue("web.example.com")
CRYPTOMB = "envoy.extensions.private_key_providers.cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig"


@pytest.mark.parametrize(
    ("provider_name", "type_name"),
    [("cryptomb", CRYPTOMB), ("qat", "envoy.extensions.private_key_providers.qat.v3alpha.QatPrivateKeyMethodConfig")],
)
def test_key_uses_the_configured_provider(provider_name: str, type_name: str) -> None:
    world = World(f"defaultConfig: {{privateKeyProvider: {{{provider_name}: {{pollDelay: 10ms, fallback: true}}}}}}")
    world.apply_objects(tls_secret("web", WEB))
    secret = served_secret(world, "kubernetes://web")
    assert secret is not None
    provider = secret.tls_certificate.private_key_provider
    assert (provider.provider_name, provider.fallback, provider.typed_config.type_url) == (
        provider_name,
        True,
        f"type.googleapis.com/{type_name}",
    )
    value = provider.typed_config.value
    key = base_pb2.DataSource(inline_bytes=WEB.private_key).SerializeToString()
    delay = duration_pb2.Duration(nanos=10_000_000).SerializeToString()
    assert value == length_delimited(1, key) + length_delimited(2, delay)
    assert not secret.tls_certificate.HasField("private_key")
    assert "PRIVATE KEY" not in str(plain(Resource.of(SECRET, secret)))


@pytest.mark.parametrize(
    ("extensions", "provided"), [(frozenset({CRYPTOMB}), True), (frozenset({"envoy.filters.http.router"}), False)]
)
def test_unsupported_provider_is_not_used(extensions: frozenset[str], provided: bool) -> None:
    world = World("defaultConfig: {privateKeyProvider: {cryptomb: {pollDelay: 10ms}}}")
    world.apply_objects(tls_secret("web", WEB))
    secret = served_secret(world, "kubernetes://web", replace(edge_router(), extensions=extensions))
    assert secret is not None
    assert (
        secret.tls_certificate.HasField("private_key_provider"),
        secret.tls_certificate.HasField("private_key"),
    ) == (
        provided,
        not provided,
    )


def test_provider_is_chosen_per_proxy() -> None:
    env = world(tls_secret("web", WEB))
    metadata = {"PROXY_CONFIG": {"privateKeyProvider": {"qat": {"pollDelay": "1s"}}}}
    fast = edge_router("b", ip="10.1.0.2")
    fast = replace(fast, metadata={**fast.metadata, **metadata})
    for _ in range(2):
        for client, provided in ((edge_router(), False), (fast, True)):
            secret = served_secret(env, "kubernetes://web", client)
            assert secret is not None
            assert secret.tls_certificate.HasField("private_key_provider") == provided
