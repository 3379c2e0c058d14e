"""Providers that do the arithmetic of private keys, where a proxy's config names one."""

from __future__ import annotations

import pytest
from envoy.config.core.v3 import base_pb2
from google.protobuf import duration_pb2
from msgspec.structs import replace

from pilot.debug.config_dump import plain
from pilot.envoy.resource import Resource, length_delimited
from pilot.lib.xds_types import SECRET
from testing.mesh.objects import world
from testing.mesh.world import World
from testing.security.credentials import Authority, edge, served, tls_secret

WEB = Authority().issue("web.example.com")
CRYPTOMB = "envoy.extensions.private_key_providers.cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig"


@pytest.mark.parametrize(
    ("kind", "type_name"),
    [("cryptomb", CRYPTOMB), ("qat", "envoy.extensions.private_key_providers.qat.v3alpha.QatPrivateKeyMethodConfig")],
)
def test_a_key_goes_to_the_provider_of_the_proxys_config(kind: str, type_name: str) -> None:
    made = World(f"defaultConfig: {{privateKeyProvider: {{{kind}: {{pollDelay: 10ms, fallback: true}}}}}}")
    made.apply_objects(tls_secret("web", WEB))
    found = served(made, "kubernetes://web")
    assert found is not None
    provider = found.tls_certificate.private_key_provider
    assert (provider.provider_name, provider.fallback, provider.typed_config.type_url) == (
        kind,
        True,
        f"type.googleapis.com/{type_name}",
    )
    value = provider.typed_config.value
    key = base_pb2.DataSource(inline_bytes=WEB.private_key).SerializeToString()
    delay = duration_pb2.Duration(nanos=10_000_000).SerializeToString()
    assert value == length_delimited(1, key) + length_delimited(2, delay)
    assert not found.tls_certificate.HasField("private_key")
    assert "PRIVATE KEY" not in str(plain(Resource.of(SECRET, found)))


@pytest.mark.parametrize(
    ("extensions", "provided"), [(frozenset({CRYPTOMB}), True), (frozenset({"envoy.filters.http.router"}), False)]
)
def test_a_provider_that_the_proxys_build_lacks_is_not_used(extensions: frozenset[str], provided: bool) -> None:
    made = World("defaultConfig: {privateKeyProvider: {cryptomb: {pollDelay: 10ms}}}")
    made.apply_objects(tls_secret("web", WEB))
    found = served(made, "kubernetes://web", replace(edge(), extensions=extensions))
    assert found is not None
    assert (found.tls_certificate.HasField("private_key_provider"), found.tls_certificate.HasField("private_key")) == (
        provided,
        not provided,
    )


def test_proxies_with_and_without_a_provider_get_each_what_is_theirs() -> None:
    made = world(tls_secret("web", WEB))
    announced = {"PROXY_CONFIG": {"privateKeyProvider": {"qat": {"pollDelay": "1s"}}}}
    fast = edge("b", ip="10.1.0.2")
    fast = replace(fast, metadata={**fast.metadata, **announced})
    for _ in range(2):
        for who, provided in ((edge(), False), (fast, True)):
            found = served(made, "kubernetes://web", who)
            assert found is not None
            assert found.tls_certificate.HasField("private_key_provider") == provided
