"""Compliance policies (setting COMPLIANCE_POLICY). They restrict each TLS context after all other settings are applied.

https://istio.io/latest/docs/reference/commands/pilot-discovery/#envvars
"""

from __future__ import annotations

from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2

FIPS_CIPHERS = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
)
_Parameters = common_pb2.TlsParameters


def apply_compliance(context: tls_pb2.CommonTlsContext, policy: str) -> None:
    """Apply a policy to a TLS context that is being built. An unknown policy has no effect."""
    if policy == "fips-140-2":
        parameters = context.tls_params
        parameters.tls_minimum_protocol_version = parameters.tls_maximum_protocol_version = _Parameters.TLSv1_2
        # An empty list means the defaults of the FIPS build.
        if parameters.cipher_suites:
            allowed = [c for c in parameters.cipher_suites if c in FIPS_CIPHERS]
            del parameters.cipher_suites[:]
            parameters.cipher_suites.extend(allowed)
        del parameters.ecdh_curves[:]
    elif policy == "fips-140-3":
        del context.tls_params.compliance_policies[:]
        context.tls_params.compliance_policies.append(_Parameters.FIPS_202205)
    elif policy == "pqc":
        parameters = context.tls_params
        parameters.tls_minimum_protocol_version = _Parameters.TLSv1_3
        del parameters.cipher_suites[:]
        parameters.cipher_suites.extend(FIPS_CIPHERS)
        del parameters.ecdh_curves[:]
        parameters.ecdh_curves.append("X25519MLKEM768")
