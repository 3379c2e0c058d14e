"""Validation of mutated key material reports flaws and never raises."""

from __future__ import annotations

import base64
import random
import warnings

import pytest

from pilot.config.key_material import Flaw, KeyPair, find_key_pair, find_roots
from pilot.config.validation.key_material import find_authority_flaw, find_flaw, find_staple_flaw
from testing.security.credentials import Authority, rsa_key

CA = Authority()
ISSUED = (CA.issue("one"), CA.issue("strict", must_staple=True), CA.issue("rsa", rsa_key()))


def mutate(rng: random.Random, content: bytes) -> bytes:
    """Return the content with some bytes changed, removed or added."""
    result = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        index = rng.randrange(len(result))
        match rng.randrange(4):
            case 0:
                result[index] = rng.randrange(256)
            case 1:
                result[index] ^= 1 << rng.randrange(8)
            case 2:
                result[index:index] = rng.randbytes(rng.randrange(1, 5))
            case _:
                del result[index : index + rng.randrange(1, 6)]
    return bytes(result) or b"x"


def mutate_pem(rng: random.Random, pem: bytes) -> bytes:
    """Return a PEM with its payload mutated, or occasionally its text."""
    if rng.random() < 0.1:
        return mutate(rng, pem)
    first, *lines, last = pem.splitlines()
    return b"\n".join([first, base64.encodebytes(mutate(rng, base64.b64decode(b"".join(lines)))).strip(), last, b""])


@pytest.mark.parametrize("part", range(4))
def test_mutated_material_never_raises(seed: int, part: int) -> None:
    rng, flaws = random.Random(f"key material {seed} {part}"), set[str]()
    for _ in range(40):
        credential = rng.choice(ISSUED)
        chain, key = credential.chain, credential.private_key
        data = {
            "tls.crt": chain,
            "tls.key": key,
            "tls.ocsp-staple": CA.staple(credential),
            "ca.crt": CA.pem,
            "ca.crl": CA.crl(credential),
        }
        for name in rng.sample(sorted(data), rng.randint(1, 2)):
            data[name] = mutate(rng, data[name]) if name == "tls.ocsp-staple" else mutate_pem(rng, data[name])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation warnings of the library about malformed certificates
            for material in (find_key_pair(data), find_roots(data)):
                flaw = material if isinstance(material, Flaw) else find_flaw(material)
                if flaw is not None:
                    flaws.add(flaw.path)
                elif isinstance(material, KeyPair):
                    find_staple_flaw(material)
            find_authority_flaw(data["ca.crt"].decode("latin-1"))
    assert len(flaws) > 2
