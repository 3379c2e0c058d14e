"""External signers: permitted requests and accepted responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from ca.csr import decode_csr
from ca.errors import SigningError
from ca.external_signer import RegistrationAuthority
from ca.pem import bundle_pem, certificate_pem
from ca.signer import Signer
from testing.security.certificates import DAY, IDENTITY, NOW, csr, ec_key, intermediate, name, request_pem, root

OTHER = "spiffe://cluster.local/ns/bank/sa/admin"
REQUEST = csr(names=(IDENTITY,))
BELOW = intermediate(root(3))


def issue_leaf(signer: Signer, request: bytes = REQUEST, *names: str) -> x509.Certificate:
    return signer.issue(decode_csr(request), names or (IDENTITY,), DAY, NOW)


class ExternalSigner:
    """A registration authority and its signer, which responds with the result of `chain`."""

    def __init__(
        self,
        domain: str = "",
        roots: Sequence[x509.Certificate] = (),
        signer: str = "example.com/mesh",
        **answers: Sequence[Any],
    ) -> None:
        self.requests: list[tuple[bytes, str, int]] = []
        self.chain: Callable[[], bytes] = lambda: bundle_pem((issue_leaf(BELOW), *BELOW.intermediates))
        self.authority = RegistrationAuthority(
            self.issue, signer, domain, 90 * DAY, lambda signer: answers.get(signer.rpartition("/")[2], roots)
        )

    async def issue(self, request: bytes, signer: str, seconds: int) -> bytes:
        self.requests.append((request, signer, seconds))
        return self.chain()

    async def sign(self, request: bytes = REQUEST, seconds: int = 0, signer: str = "") -> list[str]:
        return await self.authority.sign(request, (IDENTITY, "web.shop.svc"), seconds, signer)

    async def signing_error(self, **arguments: Any) -> str:
        with pytest.raises(SigningError) as caught:
            await self.sign(**arguments)
        return f"{caught.value.code}: {caught.value}"


async def test_chain_is_leaf_intermediates_and_roots() -> None:
    signer = ExternalSigner(roots=root(3).roots)
    leaf, issuer, roots = await signer.sign()
    assert x509.load_pem_x509_certificate(leaf.encode()).public_key() == ec_key().public_key()
    assert issuer.strip().encode() == certificate_pem(BELOW.certificate).strip()
    assert roots.encode() == root(3).roots_pem
    assert signer.requests == [(REQUEST, "example.com/mesh", 0)]


async def test_roots_default_to_those_in_the_chain() -> None:
    signer = ExternalSigner()
    signer.chain = lambda: bundle_pem((issue_leaf(BELOW), *BELOW.intermediates, *BELOW.roots))
    assert [len(await signer.sign()), (await signer.sign())[-1].encode()] == [3, root(3).roots_pem]
    signer.chain = lambda: bundle_pem((issue_leaf(BELOW), *BELOW.intermediates))
    assert (
        await signer.signing_error()
        == "CERT_GEN_ERROR: the certificate issued by example.com/mesh does not chain to a known root"
    )


async def test_request_may_name_a_signer_of_the_domain() -> None:
    signer = ExternalSigner(domain="issuers.example.com", other=root(3).roots)
    assert len(await signer.sign(signer="other", seconds=3600)) == 3
    assert signer.requests == [(REQUEST, "issuers.example.com/other", 3600)]
    assert (await ExternalSigner().signing_error(signer="other")).startswith(
        "CERT_GEN_ERROR: the request names the signer 'other', but CERT_SIGNER_DOMAIN is not"
    )
    assert (await ExternalSigner(domain="issuers.example.com", signer="").signing_error()).startswith(
        "CERT_GEN_ERROR: the request names no signer"
    )


async def test_only_the_first_pem_request_reaches_the_signer() -> None:
    signer = ExternalSigner(roots=root(3).roots)
    await signer.sign(b"a letter\n" + REQUEST + csr(names=(OTHER,)))
    assert [request for request, _, _ in signer.requests] == [REQUEST]


def build_request(*extensions: x509.ExtensionType, subject: x509.Name = x509.Name([])) -> bytes:
    builder = x509.CertificateSigningRequestBuilder(subject)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(ec_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def names(*values: x509.GeneralName) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(values)


IDENTITY_NAME = x509.UniformResourceIdentifier(IDENTITY)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (csr(names=(OTHER,)), f"CSR_ERROR: the request is for {OTHER}, but the caller is {IDENTITY}, web.shop.svc"),
        (csr(names=(IDENTITY, OTHER)), f"CSR_ERROR: the request is for {OTHER}, {IDENTITY}"),
        (csr(), "CSR_ERROR: the request is for no identity"),
        (
            build_request(names(IDENTITY_NAME, x509.DNSName("web.shop.svc"))),
            "CSR_ERROR: the request is for <DNSName(value='web.shop.svc')>, spiffe://",
        ),
        (
            build_request(names(IDENTITY_NAME), x509.BasicConstraints(ca=True, path_length=None)),
            "CSR_ERROR: the request has extensions other than names: 2.5",
        ),
        (
            csr(names=(IDENTITY,), common_name="istiod.istio-system.svc"),
            "CSR_ERROR: the subject CN=istiod.istio-system.svc is not allowed",
        ),
        (request_pem(b"nonsense"), "CSR_ERROR: "),
    ],
    ids=["another", "two", "none", "DNS", "authority", "common name", "nonsense"],
)
async def test_request_for_other_names_is_rejected(request_: bytes, reason: str) -> None:
    signer = ExternalSigner(roots=root(3).roots)
    assert (await signer.signing_error(request=request_)).startswith(reason)
    assert signer.requests == []


async def test_negative_lifetime_leaves_the_choice_to_the_signer() -> None:
    signer = ExternalSigner(roots=root(3).roots)
    await signer.sign(seconds=-5)
    assert [seconds for _, _, seconds in signer.requests] == [0]


async def test_subject_with_only_an_organization_is_permitted() -> None:
    request = build_request(names(IDENTITY_NAME), subject=name("mesh"))
    signer = ExternalSigner(roots=root(3).roots)
    assert len(await signer.sign(request)) == 3


async def test_lifetime_above_the_maximum_is_rejected() -> None:
    signer = ExternalSigner()
    assert (await signer.signing_error(seconds=90 * 86400 + 1)).startswith("TTL_ERROR")
    assert signer.requests == []


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (lambda: b"", "no valid certificates"),
        (lambda: certificate_pem(issue_leaf(root(4))), "does not chain to a known root"),
        (lambda: bundle_pem((issue_leaf(root(4)), *BELOW.intermediates)), "does not chain to a known root"),
        (
            lambda: certificate_pem(issue_leaf(root(3), csr(ec_key(9), names=(IDENTITY,)))),
            "does not match the request",
        ),
        (lambda: certificate_pem(issue_leaf(root(3), REQUEST, OTHER)), "does not match the request"),
        (
            lambda: certificate_pem(issue_leaf(root(3), REQUEST, IDENTITY, "bank.example.com")),
            "does not match the request",
        ),
    ],
    ids=["nothing", "another root", "chain of another signer", "another key", "another name", "more names"],
)
async def test_response_that_does_not_match_the_request_is_rejected(chain: Callable[[], bytes], reason: str) -> None:
    signer = ExternalSigner(roots=root(3).roots)
    signer.chain = chain
    error = await signer.signing_error()
    assert error.startswith("CERT_GEN_ERROR")
    assert reason in error
