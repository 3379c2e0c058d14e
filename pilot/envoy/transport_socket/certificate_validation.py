"""Validation of peer certificates."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from envoy.type.matcher.v3 import string_pb2


@lru_cache(maxsize=4096)
def exact_matcher(value: str) -> string_pb2.StringMatcher:
    """Return an exact matcher. The message is shared and must be copied, not modified."""
    return string_pb2.StringMatcher(exact=value)


def build_validation(
    alt_names: Iterable[str] = (), prefixes: Iterable[str] = (), crl: str = "", accept_untrusted: bool = False
) -> common_pb2.CertificateValidationContext:
    """Return a validation context.

    If `alt_names` or `prefixes` are given, a certificate must have a subject alternative name that matches one of them.
    `crl` is the path of a certificate revocation list.
    """
    context = common_pb2.CertificateValidationContext()
    context.match_subject_alt_names.extend([exact_matcher(n) for n in alt_names])
    context.match_subject_alt_names.extend([string_pb2.StringMatcher(prefix=p) for p in prefixes])
    if crl:
        context.crl.CopyFrom(file_source(crl))
    if accept_untrusted:
        context.trust_chain_verification = common_pb2.CertificateValidationContext.ACCEPT_UNTRUSTED
    return context


def build_combined(
    default: common_pb2.CertificateValidationContext, roots: secret_pb2.SdsSecretConfig
) -> tls_pb2.CommonTlsContext.CombinedCertificateValidationContext:
    """Return a validation context whose roots are delivered over SDS."""
    return tls_pb2.CommonTlsContext.CombinedCertificateValidationContext(
        default_validation_context=default, validation_context_sds_secret_config=roots
    )


def file_source(path: str) -> base_pb2.DataSource:
    """Return the data source for a file that Envoy itself reads."""
    return base_pb2.DataSource(filename=path)
