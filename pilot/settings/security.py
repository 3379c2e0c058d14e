"""Settings of who callers are, of the port with TLS, and of the certificate authority."""

# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class SecurePortSettings:
    """The port with TLS, and its certificate."""

    address: str = setting(
        ":15012",
        "Address of xDS and of the certificate authority, with TLS; empty to have no TLS, and the authority at --grpcAddr.",
        flag="secureGRPCAddr",
    )
    certificate_file: str = setting(
        "", "Certificate chain of this port. With --tlsKeyFile and --caCertFile.", flag="tlsCertFile"
    )
    key_file: str = setting("", "Private key of this port.", flag="tlsKeyFile")
    roots_file: str = setting("", "Roots that client certificates are verified with.", flag="caCertFile")
    certificate_provider: str = setting(
        "istiod",
        "Who issues the certificate of this port: istiod, the authority itself; k8s.io/SIGNER, with EXTERNAL_CA, that signer of the API "
        "server, and there is no authority; none, nobody, and there is no TLS without files.",
        env="PILOT_CERT_PROVIDER",
    )
    custom_hosts: tuple[str, ...] = setting(
        (), "Further DNS names in the certificate of this port.", env="ISTIOD_CUSTOM_HOST"
    )
    cipher_suites: tuple[str, ...] = setting(
        (), "Cipher suites up to TLS 1.2, by Go's names; none for the defaults.", flag="tls-cipher-suites"
    )
    oldest_version: str = setting("TLSV1_2", "Oldest version of TLS: TLSV1_2 or TLSV1_3.", flag="tls-min-version")


@dataclasses.dataclass(frozen=True)
class AuthenticationSettings:
    """How callers prove who they are."""

    enabled: bool = setting(
        True,
        "Callers of the port with TLS prove who they are. Without that, certificates and secrets are for nobody.",
        env="XDS_AUTH",
    )
    plaintext: bool = setting(
        False, "Callers of the port without TLS prove who they are too.", env="XDS_AUTH_PLAINTEXT"
    )
    identity_check: bool = setting(
        True,
        "A proxy must be of the namespace and service account that its caller has proved.",
        env="PILOT_ENABLE_XDS_IDENTITY_CHECK",
    )
    objects_for_root: bool = setting(
        True,
        "Configuration objects over xDS are for identities of the mesh's root namespace alone.",
        env="ENABLE_XDS_API_GENERATOR_AUTH",
    )
    token_audiences: tuple[str, ...] = setting(
        ("istio-ca",), "Audiences of which a service account token must name one.", env="TOKEN_AUDIENCES"
    )
    token_issuer: str = setting(
        "",
        "Who must have issued the tokens that --tokenKeys verifies; empty for anybody. Without --tokenKeys, outside of Kubernetes, the OpenID "
        "Connect provider whose tokens are accepted for certificates; empty for that of the control plane's own token.",
        env="TOKEN_ISSUER",
    )
    provider_audience: str = setting(
        "",
        "Audience that tokens of that provider must name; empty for the first of the control plane's own token.",
        env="AUDIENCE",
    )
    token_keys: str = setting(
        "",
        "File with the public keys (JWKS) of service account tokens, where there is no API server to review them.",
        flag="tokenKeys",
        env="PILOT_TOKEN_KEYS",
    )
    jwt_rule: str = setting(
        "",
        "JSON object with issuer, jwks_uri and audiences of OpenID Connect, whose tokens are accepted too.",
        env="JWT_RULE",
    )
    trusted_gateways: tuple[str, ...] = setting(
        (),
        "Blocks of addresses of gateways that end the TLS of callers, and whose header x-forwarded-client-cert says who these are; set, this "
        "machine is believed too.",
        env="TRUSTED_GATEWAY_CIDR",
    )


@dataclasses.dataclass(frozen=True)
class AuthoritySettings:
    """The certificate authority."""

    enabled: bool = setting(True, "Issue certificates.", env="ENABLE_CA_SERVER")
    external: str = setting(
        "",
        "ISTIOD_RA_KUBERNETES_API: signers of the API server issue the certificates of workloads. Empty: the authority itself does.",
        env="EXTERNAL_CA",
    )
    external_signer: str = setting("", "That signer, for requests that name none.", env="K8S_SIGNER")
    external_domain: str = setting("", "Domain of the signers that requests name.", env="CERT_SIGNER_DOMAIN")
    plugged_in_dir: str = setting(
        "./etc/cacerts",
        "Folder of a plugged-in signing certificate: tls.crt, tls.key, ca.crt, or ca-cert.pem, ca-key.pem, root-cert.pem, "
        "cert-chain.pem.",
        env="ROOT_CA_DIR",
    )
    remote_files: bool = setting(
        False,
        "Write the files of the Secret cacerts of the API server into that folder first, where it has no signing key.",
        env="USE_REMOTE_CERTS",
    )
    self_signed_cacerts: bool = setting(
        False,
        "Keep a self-signed root in the Secret cacerts where there is no istio-ca-secret.",
        env="USE_CACERTS_FOR_SELF_SIGNED_CA",
    )
    self_signed_dir: str = setting(
        "",
        "Folder in which a self-signed root (ca-cert.pem, ca-key.pem) is kept without Kubernetes; empty: every start makes another one.",
        flag="caDir",
        env="PILOT_SELF_SIGNED_CA_DIR",
    )
    node_accounts: tuple[str, ...] = setting(
        (),
        "Service accounts, NAMESPACE/NAME, of proxies that may ask for the certificates of what runs on their node.",
        env="CA_TRUSTED_NODE_ACCOUNTS",
    )
    default_ttl: Duration = setting(
        parse_duration("24h"), "Life of a certificate whose request asks for none.", env="DEFAULT_WORKLOAD_CERT_TTL"
    )
    longest_ttl: Duration = setting(
        parse_duration("2160h"), "Longest life that a request may ask for.", env="MAX_WORKLOAD_CERT_TTL"
    )
    root_ttl: Duration = setting(
        parse_duration("87600h"), "Life of a self-signed root.", env="CITADEL_SELF_SIGNED_CA_CERT_TTL"
    )
    root_key_bits: int = setting(
        2048, "Size of the RSA key of a self-signed root.", env="CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE"
    )
    root_check_interval: Duration = setting(
        parse_duration("1h"),
        "Time between two looks at whether a self-signed root must be renewed.",
        env="CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL",
    )
    root_grace_percent: int = setting(
        20,
        "Percent of its life that a self-signed root has left when it is renewed.",
        env="CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE",
    )
    root_check_jitter: bool = setting(
        True,
        "The first look comes after a random part of the interval.",
        env="CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR",
    )
    multiple_roots: bool = setting(
        False,
        "The mesh has several roots, which proxies are told; those of a plugged-in authority may come and go while this runs.",
        env="ISTIO_MULTIROOT_MESH",
    )
