"""Certificates that somebody else signs: what may be asked for, and what of the answer can be used."""

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


def issued(signer: Signer, request: bytes = REQUEST, *names: str) -> x509.Certificate:
    return signer.issue(decode_csr(request), names or (IDENTITY,), DAY, NOW)


class World:
    """A registration authority and the signer that it asks, which answers with what `chain` returns."""

    def __init__(
        self,
        domain: str = "",
        roots: Sequence[x509.Certificate] = (),
        signer: str = "example.com/mesh",
        **answers: Sequence[Any],
    ) -> None:
        self.asked: list[tuple[bytes, str, int]] = []
        self.chain: Callable[[], bytes] = lambda: bundle_pem((issued(BELOW), *BELOW.intermediates))
        self.authority = RegistrationAuthority(
            self.ask, signer, domain, 90 * DAY, lambda signer: answers.get(signer.rpartition("/")[2], roots)
        )

    async def ask(self, request: bytes, signer: str, seconds: int) -> bytes:
        self.asked.append((request, signer, seconds))
        return self.chain()

    async def sign(self, request: bytes = REQUEST, seconds: int = 0, signer: str = "") -> list[str]:
        return await self.authority.sign(request, (IDENTITY, "web.shop.svc"), seconds, signer)

    async def refused(self, **asked: Any) -> str:
        with pytest.raises(SigningError) as caught:
            await self.sign(**asked)
        return f"{caught.value.code}: {caught.value}"


async def test_the_chain_is_a_leaf_its_intermediates_and_the_roots() -> None:
    world = World(roots=root(3).roots)
    leaf, above, roots = await world.sign()
    assert x509.load_pem_x509_certificate(leaf.encode()).public_key() == ec_key().public_key()
    assert above.strip().encode() == certificate_pem(BELOW.certificate).strip()
    assert roots.encode() == root(3).roots_pem
    assert world.asked == [(REQUEST, "example.com/mesh", 0)]


async def test_roots_that_nobody_knows_are_those_in_the_chain() -> None:
    world = World()
    world.chain = lambda: bundle_pem((issued(BELOW), *BELOW.intermediates, *BELOW.roots))
    assert [len(await world.sign()), (await world.sign())[-1].encode()] == [3, root(3).roots_pem]
    world.chain = lambda: bundle_pem((issued(BELOW), *BELOW.intermediates))
    assert (
        await world.refused()
        == "CERT_GEN_ERROR: the certificate issued by example.com/mesh does not chain to a known root"
    )


async def test_a_request_may_name_a_signer_of_the_domain() -> None:
    world = World(domain="issuers.example.com", other=root(3).roots)
    assert len(await world.sign(signer="other", seconds=3600)) == 3
    assert world.asked == [(REQUEST, "issuers.example.com/other", 3600)]
    assert (await World().refused(signer="other")).startswith(
        "CERT_GEN_ERROR: the request names the signer 'other', but CERT_SIGNER_DOMAIN is not"
    )
    assert (await World(domain="issuers.example.com", signer="").refused()).startswith(
        "CERT_GEN_ERROR: the request names no signer"
    )


async def test_what_stands_around_a_request_does_not_reach_the_signer() -> None:
    world = World(roots=root(3).roots)
    await world.sign(b"a letter\n" + REQUEST + csr(names=(OTHER,)))
    assert [request for request, _, _ in world.asked] == [REQUEST]


def asking(*extensions: x509.ExtensionType, subject: x509.Name = x509.Name([])) -> bytes:
    builder = x509.CertificateSigningRequestBuilder(subject)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(ec_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def names(*found: x509.GeneralName) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(found)


OWN = x509.UniformResourceIdentifier(IDENTITY)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (csr(names=(OTHER,)), f"CSR_ERROR: the request is for {OTHER}, but the caller is {IDENTITY}, web.shop.svc"),
        (csr(names=(IDENTITY, OTHER)), f"CSR_ERROR: the request is for {OTHER}, {IDENTITY}"),
        (csr(), "CSR_ERROR: the request is for no identity"),
        (
            asking(names(OWN, x509.DNSName("web.shop.svc"))),
            "CSR_ERROR: the request is for <DNSName(value='web.shop.svc')>, spiffe://",
        ),
        (
            asking(names(OWN), x509.BasicConstraints(ca=True, path_length=None)),
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
async def test_a_request_for_something_else_reaches_no_signer(request_: bytes, reason: str) -> None:
    world = World(roots=root(3).roots)
    assert (await world.refused(request=request_)).startswith(reason)
    assert world.asked == []


async def test_a_life_below_nothing_is_as_long_as_the_signer_likes() -> None:
    world = World(roots=root(3).roots)
    await world.sign(seconds=-5)
    assert [seconds for _, _, seconds in world.asked] == [0]


async def test_an_organization_is_nobodys_name() -> None:
    request = asking(names(OWN), subject=name("mesh"))
    world = World(roots=root(3).roots)
    assert len(await world.sign(request)) == 3


async def test_too_long_a_life_reaches_no_signer() -> None:
    world = World()
    assert (await world.refused(seconds=90 * 86400 + 1)).startswith("TTL_ERROR")
    assert world.asked == []


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (lambda: b"", "no valid certificates"),
        (lambda: certificate_pem(issued(root(4))), "does not chain to a known root"),
        (lambda: bundle_pem((issued(root(4)), *BELOW.intermediates)), "does not chain to a known root"),
        (
            lambda: certificate_pem(issued(root(3), csr(ec_key(9), names=(IDENTITY,)))),
            "does not match the request",
        ),
        (lambda: certificate_pem(issued(root(3), REQUEST, OTHER)), "does not match the request"),
        (
            lambda: certificate_pem(issued(root(3), REQUEST, IDENTITY, "bank.example.com")),
            "does not match the request",
        ),
    ],
    ids=["nothing", "another root", "beside the chain of another", "another key", "another name", "more names"],
)
async def test_an_answer_that_is_not_what_was_asked_for_is_none(chain: Callable[[], bytes], reason: str) -> None:
    world = World(roots=root(3).roots)
    world.chain = chain
    found = await world.refused()
    assert found.startswith("CERT_GEN_ERROR")
    assert reason in found
