"""Renewal of the workload certificate."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import itertools
import pathlib
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ca.csr import decode_csr
from pilot.agent.agent_settings import AgentSettings, CertificateSettings
from pilot.agent.certificates.ca_client import CaClientError, fetch_certificate
from pilot.agent.certificates.certificate_renewer import (
    MAX_RETRY_SECONDS,
    MAX_SLEEP_SECONDS,
    MIN_RETRY_SECONDS,
    CertificateRenewer,
    seconds_until_renewal,
    seconds_until_retry,
    write_certificate,
)
from pilot.agent.certificates.workload_certificate import (
    WorkloadCertificate,
    build_csr,
    check_key_settings,
    generate_key,
    key_pem,
    load_certificate,
)
from pilot.agent.upstream_server import (
    ClientCertificate,
    UpstreamConfigError,
    UpstreamServer,
    ca_upstream,
    xds_upstream,
)
from pilot.lib.duration import Duration
from testing.control_planes.secure_port import NAME, SecurePort
from testing.security import certificates

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
IDENTITY = "spiffe://cluster.local/ns/shop/sa/web"
EC_KEYS = CertificateSettings(algorithm="ECDSA")
CONTROL_PLANE = AgentSettings().control_plane


def certificate(not_before: datetime.datetime, not_after: datetime.datetime) -> WorkloadCertificate:
    return WorkloadCertificate(b"chain", b"key", b"roots", not_before, not_after)


def test_renewal_time_follows_the_grace_ratio() -> None:
    not_before = NOW - datetime.timedelta(minutes=2)  # authorities backdate certificates
    seconds = [
        seconds_until_renewal(not_before, NOW + 10 * HOUR, NOW + hours * HOUR, 0.5, 0, lambda: 0.5)
        for hours in (0, 4, 6)
    ]
    assert seconds == [5 * 3600, 3600, 0]


def test_jitter_moves_renewal_both_ways() -> None:
    seconds = [
        seconds_until_renewal(NOW, NOW + 10 * HOUR, NOW, 0.5, 0.1, lambda number=number: number)
        for number in (0, 0.5, 1)
    ]
    assert seconds == [pytest.approx(6 * 3600), pytest.approx(5 * 3600), pytest.approx(4 * 3600)]


def test_backdated_lifetime_starts_at_issuance() -> None:
    not_before = NOW - datetime.timedelta(minutes=2)
    assert seconds_until_renewal(not_before, NOW + datetime.timedelta(seconds=30), NOW, 0.5, 0, lambda: 0.5) == 15


@pytest.mark.parametrize("ratio", [-1.0, 2.0])
def test_out_of_range_ratio_is_clamped(ratio: float) -> None:
    assert 0 <= seconds_until_renewal(NOW, NOW + HOUR, NOW, ratio, 0, lambda: 0.5) <= 3600


def test_retry_delay_doubles_with_jitter() -> None:
    delays = [seconds_until_retry(failures, lambda: 0.0) for failures in range(1, 10)]
    assert delays[:3] == [MIN_RETRY_SECONDS, 2 * MIN_RETRY_SECONDS, 4 * MIN_RETRY_SECONDS]
    assert delays[-1] == MAX_RETRY_SECONDS == seconds_until_retry(10_000, lambda: 0.0)
    assert seconds_until_retry(1, lambda: 1.0) == MIN_RETRY_SECONDS / 2


class Authority:
    """A clock that sleeping moves, and an authority with prepared responses."""

    def __init__(self, responses: Iterator[datetime.timedelta | str]) -> None:
        self.now, self.responses = NOW, responses
        self.fetches: list[datetime.datetime] = []
        self.certificates: list[WorkloadCertificate] = []
        self.failures = 0
        self.longest_sleep = 0.0

    async def sleep(self, seconds: float) -> None:
        self.longest_sleep = max(self.longest_sleep, seconds)
        self.now += datetime.timedelta(seconds=seconds)
        await asyncio.sleep(0)

    async def fetch(self) -> WorkloadCertificate:
        self.fetches.append(self.now)
        try:
            response = next(self.responses)
        except StopIteration:
            await asyncio.Event().wait()
            raise AssertionError from None
        if isinstance(response, str):
            raise CaClientError(response)
        return certificate(self.now, self.now + response)

    def on_failure(self) -> None:
        self.failures += 1

    async def run(self, settings: CertificateSettings, count: int) -> None:
        renewer = CertificateRenewer(
            settings, self.fetch, self.certificates.append, self.on_failure, lambda: self.now, self.sleep, lambda: 0.5
        )
        task = asyncio.ensure_future(renewer.run())
        while len(self.fetches) < count:
            await asyncio.sleep(0)
        task.cancel()


async def test_certificates_are_renewed_before_expiry() -> None:
    world = Authority(itertools.repeat(24 * HOUR, 4))
    await world.run(CertificateSettings(), 5)
    assert [(time - NOW) / HOUR for time in world.fetches] == [pytest.approx(12 * n, abs=0.01) for n in range(5)]
    assert all(
        time < certificate.not_after for time, certificate in zip(world.fetches[1:], world.certificates, strict=True)
    )
    assert world.longest_sleep <= MAX_SLEEP_SECONDS


async def test_failed_fetches_are_retried() -> None:
    world = Authority(iter(["down", "down", "no", HOUR]))
    await world.run(CertificateSettings(), 5)
    assert world.failures == 3
    assert len(world.certificates) == 1
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(world.fetches[:4])]
    assert gaps == sorted(gaps)
    assert gaps[-1] < MAX_RETRY_SECONDS


async def test_certificate_stays_while_renewal_fails() -> None:
    world = Authority(iter([HOUR, "down", "down", HOUR]))
    await world.run(CertificateSettings(), 5)
    assert [(certificate.not_after - NOW) / HOUR for certificate in world.certificates] == [
        pytest.approx(1),
        pytest.approx(1.5, abs=0.01),
    ]


async def test_expired_certificates_do_not_cause_a_busy_loop() -> None:
    world = Authority(itertools.repeat(datetime.timedelta(0), 50))
    await world.run(CertificateSettings(), 50)
    assert (world.now - NOW).total_seconds() >= 49 * MIN_RETRY_SECONDS / 2


@pytest.mark.parametrize(
    ("settings", "kind", "label"),
    [
        (CertificateSettings(), rsa.RSAPrivateKey, "RSA PRIVATE KEY"),
        (CertificateSettings(pkcs8=True), rsa.RSAPrivateKey, "PRIVATE KEY"),
        (CertificateSettings(algorithm="ECDSA"), ec.EllipticCurvePrivateKey, "EC PRIVATE KEY"),
        (CertificateSettings(algorithm="ECDSA", curve="P384"), ec.EllipticCurvePrivateKey, "EC PRIVATE KEY"),
    ],
)
def test_generated_key_type_and_format(settings: CertificateSettings, kind: type, label: str) -> None:
    check_key_settings(settings)
    key = generate_key(settings)
    assert isinstance(key, kind)
    assert key_pem(key, settings.pkcs8).startswith(f"-----BEGIN {label}-----".encode())
    decode_csr(build_csr(key, IDENTITY))  # the CA accepts it


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (CertificateSettings(rsa_bits=1024), "WORKLOAD_RSA_KEY_SIZE: 1024 bits are too few"),
        (CertificateSettings(algorithm="DSA"), "ECC_SIGNATURE_ALGORITHM: unknown algorithm 'DSA'"),
        (CertificateSettings(algorithm="ECDSA", curve="P1"), "ECC_CURVE: unknown curve 'P1'"),
    ],
)
def test_unknown_key_settings_are_rejected(settings: CertificateSettings, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_key_settings(settings)


def test_mismatched_key_is_rejected() -> None:
    root = certificates.root()
    chain = root.chain(root.issue(decode_csr(certificates.csr()), [IDENTITY], HOUR, certificates.NOW))
    with pytest.raises(ValueError, match="the private key does not match the certificate"):
        load_certificate(chain[0].encode(), key_pem(certificates.ec_key(7), True), chain[1].encode())
    with pytest.raises(ValueError, match="the root bundle contains no PEM certificate"):
        load_certificate(chain[0].encode(), key_pem(certificates.ec_key(), True), b"none")


def test_repr_omits_the_key() -> None:
    assert "key" not in repr(certificate(NOW, NOW + HOUR))


def test_written_certificates_are_complete_and_private(tmp_path: pathlib.Path) -> None:
    write_certificate(str(tmp_path), certificate(NOW, NOW + HOUR))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "key.pem": b"key",
        "cert-chain.pem": b"chain",
        "root-cert.pem": b"roots",
    }
    assert (tmp_path / "key.pem").stat().st_mode & 0o077 == 0


# -- certificate requests ----------------------------------------------------------------------------------------------


def upstream(front: SecurePort, folder: pathlib.Path, token: str = IDENTITY) -> UpstreamServer:
    (folder / "token").write_text(token)
    return UpstreamServer(
        front.address, str(front.write_root(folder)), NAME, str(folder / "token"), "Kubernetes", None, {}
    )


async def test_authority_issues_for_the_identity_of_the_token(tmp_path: pathlib.Path) -> None:
    root = certificates.root(now=datetime.datetime.now(datetime.UTC))
    front = SecurePort(root)
    await front.start()
    certificate = await fetch_certificate(
        upstream(front, tmp_path), EC_KEYS, "spiffe://cluster.local/ns/other/sa/other", b"# more\n"
    )
    await front.stop()
    leaf = x509.load_pem_x509_certificate(certificate.chain)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [IDENTITY]
    assert certificate.roots == root.roots_pem + b"# more\n"
    assert certificate.not_after - certificate.not_before == datetime.timedelta(hours=24, minutes=2)


async def test_requested_ttl_follows_the_setting(tmp_path: pathlib.Path) -> None:
    front = SecurePort(certificates.root(now=datetime.datetime.now(datetime.UTC)))
    await front.start()
    certificate = await fetch_certificate(
        upstream(front, tmp_path), CertificateSettings(algorithm="ECDSA", ttl=Duration.of(60)), IDENTITY
    )
    await front.stop()
    assert certificate.not_after - certificate.not_before == datetime.timedelta(minutes=3)


async def test_authority_errors_are_reported(tmp_path: pathlib.Path) -> None:
    front = SecurePort(certificates.root(now=datetime.datetime.now(datetime.UTC)))
    await front.start()
    with pytest.raises(CaClientError, match="returned UNAUTHENTICATED: request authenticate failure"):
        await fetch_certificate(upstream(front, tmp_path, "nobody"), EC_KEYS, IDENTITY)
    with pytest.raises(CaClientError, match="returned INVALID_ARGUMENT: CSR signing error"):
        await fetch_certificate(
            upstream(front, tmp_path), CertificateSettings(algorithm="ECDSA", ttl=Duration.of(10**9)), IDENTITY
        )
    with pytest.raises(CaClientError, match="UNAVAILABLE"):  # the server name does not match
        await fetch_certificate(upstream(front, tmp_path)._replace(server_name="other.example"), EC_KEYS, IDENTITY)
    await front.stop()


async def test_missing_roots_and_credentials_are_reported(tmp_path: pathlib.Path) -> None:
    server = UpstreamServer(
        "127.0.0.1:1", str(tmp_path / "root.pem"), NAME, str(tmp_path / "token"), "Kubernetes", None, {}
    )
    with pytest.raises(CaClientError, match=r"cannot read the root certificates .*root.pem: No such file"):
        await fetch_certificate(server, EC_KEYS, IDENTITY)
    with pytest.raises(UpstreamConfigError, match=r"no token in .*token and no client certificate"):
        server.metadata()


def test_client_certificate_replaces_the_token(tmp_path: pathlib.Path) -> None:
    server = UpstreamServer(
        "127.0.0.1:1", "SYSTEM", NAME, str(tmp_path / "token"), "west", ClientCertificate("k", "c"), {"X-Mine": "1"}
    )
    assert server.metadata() == [("clusterid", "west"), ("x-mine", "1")]


def test_xds_client_certificate_comes_from_mounted_files() -> None:
    metadata = {"TLS_CLIENT_KEY": "/k", "TLS_CLIENT_CERT_CHAIN": "/c", "TLS_CLIENT_ROOT_CERT": "/r"}
    server = xds_upstream(CONTROL_PLANE, "a:1", False, {}, metadata)
    assert (server.client_certificate, server.root) == (ClientCertificate("/k", "/c"), "/r")
    provisioned = xds_upstream(
        dataclasses.replace(CONTROL_PLANE, xds_root="/own", provisioned_directory="/p"), "a:1", False, {}, None
    )
    assert (provisioned.client_certificate, provisioned.root) == (
        ClientCertificate("/p/key.pem", "/p/cert-chain.pem"),
        "/own",
    )


async def test_client_certificate_is_presented_without_a_token(tmp_path: pathlib.Path) -> None:
    front = SecurePort(certificates.root(now=datetime.datetime.now(datetime.UTC)))
    await front.start()
    with_token = upstream(front, tmp_path)
    write_certificate(str(tmp_path), await fetch_certificate(with_token, EC_KEYS, IDENTITY))
    with_certificate = with_token._replace(
        client_certificate=ClientCertificate(str(tmp_path / "key.pem"), str(tmp_path / "cert-chain.pem")),
        token_file=str(tmp_path / "none"),
    )
    with pytest.raises(
        CaClientError, match="UNAUTHENTICATED"
    ):  # the server accepts only tokens; the handshake succeeds
        await fetch_certificate(with_certificate, EC_KEYS, IDENTITY)
    (tmp_path / "cert-chain.pem").unlink()
    with pytest.raises(CaClientError, match="cannot read the client certificate"):
        await fetch_certificate(with_certificate, EC_KEYS, IDENTITY)
    await front.stop()


def test_token_is_never_sent_in_plaintext(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("secret")
    plain = xds_upstream(AgentSettings().control_plane, "127.0.0.1:15010", True, {})._replace(
        token_file=str(tmp_path / "token")
    )
    assert all(name != "authorization" for name, _ in plain.metadata())
    assert ("authorization", "Bearer secret") in plain._replace(root="SYSTEM").metadata()


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("istiod.mesh.svc:15012", "istiod.mesh.svc"),
        ("localhost:15012", NAME),
        ("127.0.0.1:15012", NAME),
        ("[::1]:15012", NAME),
    ],
)
def test_local_control_plane_keeps_its_service_name(address: str, name: str) -> None:
    assert ca_upstream(CONTROL_PLANE, address, {}).server_name == name


@pytest.mark.parametrize(
    ("ca_root", "provider", "is_mounted", "provisioned", "root"),
    [
        ("", "istiod", True, "", "./var/run/secrets/istio/root-cert.pem"),
        ("", "custom", True, "", "./etc/certs/root-cert.pem"),
        ("", "custom", False, "", "./var/run/secrets/istio/root-cert.pem"),
        ("", "custom", False, "/prov", "/prov/root-cert.pem"),
        ("", "istiod", True, "/prov", "/prov/root-cert.pem"),
        ("/given.pem", "custom", True, "/prov", "/given.pem"),
    ],
)
def test_ca_root_selection(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    ca_root: str,
    provider: str,
    is_mounted: bool,
    provisioned: str,
    root: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if is_mounted:
        (tmp_path / "etc" / "certs").mkdir(parents=True)
        (tmp_path / "etc" / "certs" / "root-cert.pem").write_text("")
    settings = dataclasses.replace(
        CONTROL_PLANE, ca_root=ca_root, cert_provider=provider, provisioned_directory=provisioned
    )
    server = ca_upstream(settings, "istiod:15012", {})
    assert server.root == root
    assert server.client_certificate == (
        ClientCertificate("/prov/key.pem", "/prov/cert-chain.pem") if provisioned else None
    )
