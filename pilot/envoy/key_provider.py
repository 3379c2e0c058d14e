"""Builds the providers that do the arithmetic of private keys: CryptoMB and QAT, which only some builds of Envoy have.

Their messages are in Envoy's contrib API, which the package of its messages lacks. Both have the key as field 1 and the delay as field 2.
https://www.envoyproxy.io/docs/envoy/latest/api-v3/contrib/contrib
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2
from google.protobuf import any_pb2

from pilot.config.mesh.proxy_config import PrivateKeyProvider
from pilot.envoy.durations import build_duration
from pilot.envoy.resource import length_delimited
from pilot.envoy.typed import TYPE_PREFIX
from pilot.mesh.security.credential_access import KEY_PROVIDER_TYPES


def build_key_provider(provider: PrivateKeyProvider, key: base_pb2.DataSource) -> common_pb2.PrivateKeyProvider | None:
    """Returns the provider with a key; None where the mesh's config names none."""
    for name, settings in (("cryptomb", provider.cryptomb), ("qat", provider.qat)):
        if settings is not None:
            delay = build_duration(settings.poll_delay or 0)
            value = length_delimited(1, key.SerializeToString()) + length_delimited(2, delay.SerializeToString())
            config = any_pb2.Any(type_url=TYPE_PREFIX + KEY_PROVIDER_TYPES[name], value=value)
            return common_pb2.PrivateKeyProvider(
                provider_name=name, typed_config=config, fallback=bool(settings.fallback)
            )
    return None
