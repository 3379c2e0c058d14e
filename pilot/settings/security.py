"""Settings of the secure port, authentication and the certificate authority."""

# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.checks import certificate_issuer
from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class SecurePortSettings:
    """The secure port (TLS) and its certificate."""

    address: str = setting(
        ":15012",
        "Address for xDS and the certificate authority over TLS. If empty, TLS is disabled and the "
        "certificate authority is served at --grpcAddr.",
        flag="secureGRPCAddr",
    )
    certificate_file: str = setting(
        "", "Certificate chain of the secure port. Requires --tlsKeyFile and --caCertFile.", flag="tlsCertFile"
    )
    key_file: str = setting("", "Private key of the secure port.", flag="tlsKeyFile")
    roots_file: str = setting(
        "", "Root certificates for verifying client certificates, in addition to those of the mesh.", flag="caCertFile"
    )
    certificate_provider: str = setting(
        "istiod",
        "Issuer of the secure port's certificate. istiod: the built-in authority. k8s.io/SIGNER: a Kubernetes signer, "
        "which replaces the built-in authority and requires EXTERNAL_CA. none: no issuer; TLS is disabled unless "
        "certificate files are configured.",
        env="PILOT_CERT_PROVIDER",
        check=certificate_issuer,
    )
    custom_hosts: tuple[str, ...] = setting(
        (), "Additional DNS names in the secure port's certificate.", env="ISTIOD_CUSTOM_HOST"
    )
    cipher_suites: tuple[str, ...] = setting(
        (), "TLS 1.2 cipher suites, by their Go names. If empty, the defaults are used.", flag="tls-cipher-suites"
    )
    oldest_version: str = setting("TLSV1_2", "Minimum TLS version: TLSV1_2 or TLSV1_3.", flag="tls-min-version")


@dataclasses.dataclass(frozen=True)
class AuthenticationSettings:
    """Authentication of callers."""

    enabled: bool = setting(
        True,
        "Authenticate callers of the secure port. If false, the port serves neither certificates nor secrets.",
        env="XDS_AUTH",
    )
    plaintext: bool = setting(False, "Also authenticate callers of the plaintext port.", env="XDS_AUTH_PLAINTEXT")
    identity_check: bool = setting(
        True,
        "Reject a proxy whose namespace or service account differs from its authenticated identity.",
        env="PILOT_ENABLE_XDS_IDENTITY_CHECK",
    )
    objects_for_root: bool = setting(
        True,
        "Serve configuration objects over xDS only to identities in the mesh's root namespace.",
        env="ENABLE_XDS_API_GENERATOR_AUTH",
    )
    token_audiences: tuple[str, ...] = setting(
        ("istio-ca",),
        "Accepted audiences of service account tokens. A token must have at least one of them.",
        env="TOKEN_AUDIENCES",
    )
    token_issuer: str = setting(
        "",
        "Issuer of accepted tokens. With --tokenKeys, an empty value accepts tokens of any issuer. Without "
        "--tokenKeys and outside Kubernetes, this is the OpenID Connect provider whose tokens authenticate "
        "certificate requests, and an empty value means the issuer of the control plane's own token.",
        env="TOKEN_ISSUER",
    )
    provider_audience: str = setting(
        "",
        "Required audience in tokens of the OpenID Connect provider that TOKEN_ISSUER specifies. If empty, "
        "the first audience of the control plane's own token is required.",
        env="AUDIENCE",
    )
    token_keys: str = setting(
        "",
        "File with public keys (JWKS) for verifying service account tokens without an API server.",
        flag="tokenKeys",
        env="PILOT_TOKEN_KEYS",
    )
    jwt_rule: str = setting(
        "",
        "Additional OpenID Connect provider whose tokens are accepted, as a JSON object with issuer, jwks_uri "
        "and audiences.",
        env="JWT_RULE",
    )
    trusted_gateways: tuple[str, ...] = setting(
        (),
        "CIDRs of gateways that terminate TLS and forward the client's identity in the "
        "x-forwarded-client-cert header. If set, loopback addresses are also trusted.",
        env="TRUSTED_GATEWAY_CIDR",
    )


@dataclasses.dataclass(frozen=True)
class AuthoritySettings:
    """The certificate authority."""

    enabled: bool = setting(True, "Issue certificates.", env="ENABLE_CA_SERVER")
    external: str = setting(
        "",
        "ISTIOD_RA_KUBERNETES_API: Kubernetes signers issue workload certificates. If empty, the built-in "
        "authority issues them.",
        env="EXTERNAL_CA",
    )
    external_signer: str = setting(
        "", "Kubernetes signer for certificate requests that do not specify one.", env="K8S_SIGNER"
    )
    external_domain: str = setting(
        "", "Domain of the Kubernetes signers that certificate requests may specify.", env="CERT_SIGNER_DOMAIN"
    )
    plugged_in_dir: str = setting(
        "./etc/cacerts",
        "Directory with a plugged-in signing certificate: tls.crt, tls.key and ca.crt, or ca-cert.pem, "
        "ca-key.pem, root-cert.pem and cert-chain.pem.",
        env="ROOT_CA_DIR",
    )
    remote_files: bool = setting(
        False,
        "If ROOT_CA_DIR has no signing key, first copy the files of the Secret cacerts from the API server into it.",
        env="USE_REMOTE_CERTS",
    )
    self_signed_cacerts: bool = setting(
        False,
        "Store the self-signed root in the Secret cacerts if the Secret istio-ca-secret does not exist.",
        env="USE_CACERTS_FOR_SELF_SIGNED_CA",
    )
    self_signed_dir: str = setting(
        "",
        "Directory in which the self-signed root (ca-cert.pem and ca-key.pem) is stored. If empty, the root "
        "is stored in a Secret. Without an API server, a new root is then generated at every start.",
        flag="caDir",
        env="PILOT_SELF_SIGNED_CA_DIR",
    )
    node_accounts: tuple[str, ...] = setting(
        (),
        "Service accounts (NAMESPACE/NAME) of node proxies that may request certificates for the workloads on "
        "their node.",
        env="CA_TRUSTED_NODE_ACCOUNTS",
    )
    default_ttl: Duration = setting(
        parse_duration("24h"), "Default lifetime of a certificate.", env="DEFAULT_WORKLOAD_CERT_TTL"
    )
    longest_ttl: Duration = setting(
        parse_duration("2160h"), "Maximum lifetime that a certificate request may specify.", env="MAX_WORKLOAD_CERT_TTL"
    )
    root_ttl: Duration = setting(
        parse_duration("87600h"), "Lifetime of a self-signed root certificate.", env="CITADEL_SELF_SIGNED_CA_CERT_TTL"
    )
    root_key_bits: int = setting(
        2048, "RSA key size of a self-signed root certificate, in bits.", env="CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE"
    )
    root_check_interval: Duration = setting(
        parse_duration("1h"),
        "Interval at which a self-signed root certificate is checked for renewal.",
        env="CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL",
    )
    root_grace_percent: int = setting(
        20,
        "A self-signed root certificate is renewed when this percentage of its lifetime remains.",
        env="CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE",
    )
    root_check_jitter: bool = setting(
        True,
        "Run the first renewal check after a random fraction of the interval instead of the full interval.",
        env="CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR",
    )
    multiple_roots: bool = setting(
        False,
        "Publish the mesh's root certificates to proxies, and allow the roots of a plugged-in authority to "
        "change at run time.",
        env="ISTIO_MULTIROOT_MESH",
    )
