"""Whatever is in a Secret, looking at it says what is wrong and raises nothing."""

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


def changed(choose: random.Random, content: bytes) -> bytes:
    """Some bytes are others, are gone or came."""
    made = bytearray(content)
    for _ in range(choose.choice((1, 1, 2, 5))):
        at = choose.randrange(len(made))
        match choose.randrange(4):
            case 0:
                made[at] = choose.randrange(256)
            case 1:
                made[at] ^= 1 << choose.randrange(8)
            case 2:
                made[at:at] = choose.randbytes(choose.randrange(1, 5))
            case _:
                del made[at : at + choose.randrange(1, 6)]
    return bytes(made) or b"x"


def changed_inside(choose: random.Random, pem: bytes) -> bytes:
    """The same of what PEM encodes; now and then of the PEM itself."""
    if choose.random() < 0.1:
        return changed(choose, pem)
    first, *lines, last = pem.splitlines()
    return b"\n".join(
        [first, base64.encodebytes(changed(choose, base64.b64decode(b"".join(lines)))).strip(), last, b""]
    )


@pytest.mark.parametrize("part", range(4))
def test_changed_material_is_a_flaw_at_worst(seed: int, part: int) -> None:
    choose, flaws = random.Random(f"key material {seed} {part}"), set[str]()
    for _ in range(40):
        issued = choose.choice(ISSUED)
        chain, key = issued.chain, issued.private_key
        data = {
            "tls.crt": chain,
            "tls.key": key,
            "tls.ocsp-staple": CA.staple(issued),
            "ca.crt": CA.pem,
            "ca.crl": CA.crl(issued),
        }
        for name in choose.sample(sorted(data), choose.randint(1, 2)):
            data[name] = (
                changed(choose, data[name]) if name == "tls.ocsp-staple" else changed_inside(choose, data[name])
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library, about certificates that it will refuse one day
            for found in (find_key_pair(data), find_roots(data)):
                flaw = found if isinstance(found, Flaw) else find_flaw(found)
                if flaw is not None:
                    flaws.add(flaw.path)
                elif isinstance(found, KeyPair):
                    find_staple_flaw(found)
            find_authority_flaw(data["ca.crt"].decode("latin-1"))
    assert len(flaws) > 2
