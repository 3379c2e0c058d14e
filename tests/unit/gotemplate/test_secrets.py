"""Keys, certificates and passwords that templates make."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from gotemplate import TemplateError, parse
from gotemplate.functions import SPRIG, secrets

OF_AUTHORITY, OF_SIGNER = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
KEYS: dict[str, Any] = {
    "ca": secrets._key_text(OF_AUTHORITY),
    "signer": secrets._key_text(OF_SIGNER),
    "ips": ["10.0.0.1", "::1"],
    "names": ["a.example", "b.example"],
}
USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)


def render(text: str) -> str:
    return parse("t", text, SPRIG).execute(KEYS)


def certificate(text: str) -> x509.Certificate:
    """The certificate of a pair, whose key it must be of."""
    cert, key = render(f"{{{{ $c := {text} }}}}{{{{ $c.Cert }}}}|{{{{ $c.Key }}}}").split("|")
    found = x509.load_pem_x509_certificate(cert.encode())
    assert found.public_key() == serialization.load_pem_private_key(key.encode(), None).public_key()
    return found


def described(found: x509.Certificate) -> dict[str, Any]:
    extensions = found.extensions
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    names = [e for e in extensions if isinstance(e.value, x509.SubjectAlternativeName)]
    return {
        "subject": found.subject.rfc4514_string(),
        "issuer": found.issuer.rfc4514_string(),
        "days": (found.not_valid_after_utc - found.not_valid_before_utc).days,
        "usages": [name for name in USAGES if getattr(usage.value, name)],
        "authority": (constraints.value.ca, constraints.value.path_length),
        "purposes": [purpose._name for purpose in purposes.value],
        "critical": [usage.critical, constraints.critical, purposes.critical, *(e.critical for e in names)],
        "names": [str(name.value) for e in names for name in e.value],
    }


OF_A_SERVER = {
    "usages": ["digital_signature", "key_encipherment"],
    "authority": (False, None),
    "purposes": ["serverAuth", "clientAuth"],
}
OF_AN_AUTHORITY = {
    **OF_A_SERVER,
    "usages": ["digital_signature", "key_encipherment", "key_cert_sign"],
    "authority": (True, None),
}
NAMED = {"critical": [True, True, False, False], "names": ["10.0.0.1", "::1", "a.example", "b.example"]}
NAMELESS = {"critical": [True, True, False], "names": []}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('genCA "ca" 7', {"subject": "CN=ca", "issuer": "CN=ca", "days": 7, **OF_AN_AUTHORITY, **NAMELESS}),
        ('genCAWithKey "ca" 7 .ca', {"subject": "CN=ca", "issuer": "CN=ca", "days": 7, **OF_AN_AUTHORITY, **NAMELESS}),
        (
            'genSelfSignedCert "own" .ips .names 8',
            {"subject": "CN=own", "issuer": "CN=own", "days": 8, **OF_A_SERVER, **NAMED},
        ),
        (
            'genSelfSignedCertWithKey "own" .ips .names 8 .ca',
            {"subject": "CN=own", "issuer": "CN=own", "days": 8, **OF_A_SERVER, **NAMED},
        ),
        (
            'genSelfSignedCert "own" nil nil 8',
            {"subject": "CN=own", "issuer": "CN=own", "days": 8, **OF_A_SERVER, **NAMELESS},
        ),
        (
            'genSignedCert "one" .ips .names 9 (genCAWithKey "ca" 7 .ca)',
            {"subject": "CN=one", "issuer": "CN=ca", "days": 9, **OF_A_SERVER, **NAMED},
        ),
        (
            'genSignedCertWithKey "one" .ips .names 9 (genCAWithKey "ca" 7 .ca) .signer',
            {"subject": "CN=one", "issuer": "CN=ca", "days": 9, **OF_A_SERVER, **NAMED},
        ),
        (
            'genSignedCertWithKey "one" nil nil 9 (genCAWithKey "ca" 7 .signer) .ca',
            {"subject": "CN=one", "issuer": "CN=ca", "days": 9, **OF_A_SERVER, **NAMELESS},
        ),
    ],
)
def test_certificates_say_what_was_asked_for(
    text: str, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        secrets, "_new_key", {"": ec.generate_private_key(ec.SECP256R1())}.__getitem__
    )  # an RSA key takes long
    found = certificate(text)
    assert described(found) == wanted
    assert abs(datetime.datetime.now(datetime.UTC) - found.not_valid_before_utc) < datetime.timedelta(minutes=5)


@pytest.mark.parametrize(("key", "signer"), [("ca", "signer"), ("signer", "ca")])
def test_a_certificate_is_signed_by_the_authority_s_key(key: str, signer: str) -> None:
    pair = f'$a := genCAWithKey "ca" 7 .{signer} }}}}{{{{ $c := genSignedCertWithKey "one" nil nil 9 $a .{key} '
    one, authority = render(f"{{{{ {pair} }}}}{{{{ $c.Cert }}}}|{{{{ $a.Cert }}}}").split("|")
    load = x509.load_pem_x509_certificate
    load(one.encode()).verify_directly_issued_by(load(authority.encode()))


def test_an_authority_of_a_certificate_and_a_key_signs_as_if_it_had_been_made_here() -> None:
    built = "buildCustomCert (b64enc $a.Cert) (b64enc $a.Key)"
    found = render(
        f'{{{{ $a := genCAWithKey "ca" 7 .ca }}}}{{{{ $b := {built} }}}}{{{{ eq $a.Cert $b.Cert }}}} {{{{ eq $a.Key $b.Key }}}}'
    )
    assert found == "true true"
    assert render('{{ toJson (genCAWithKey "ca" 7 .ca) | fromJson | keys | sortAlpha }}') == "[Cert Key]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('(genCAWithKey "ca" 7 .ca).Other', "can't evaluate field Other in type sprig.certificate"),
        ('buildCustomCert (b64enc "x") (b64enc .ca)', "error calling buildCustomCert: Unable to load PEM file"),
        (
            'buildCustomCert (b64enc (genCAWithKey "ca" 7 .ca).Cert) (b64enc "x")',
            "error calling buildCustomCert: unable to parse private key: ",
        ),
        ('genCAWithKey "ca" 7 "x"', "error calling genCAWithKey: unable to parse private key: "),
        (
            'genSelfSignedCertWithKey "a" (list "10.0.0") nil 1 .ca',
            "'10.0.0' does not appear to be an IPv4 or IPv6 address",
        ),
    ],
)
def test_what_is_no_certificate_or_key_is_told(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as error:
        render(f"{{{{ {text} }}}}")
    assert message in str(error.value)


def test_rsa_keys_have_4096_bits_alone_and_2048_in_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def generate(exponent: int, bits: int) -> Any:
        asked.append((exponent, bits))
        return OF_AUTHORITY

    monkeypatch.setattr(rsa, "generate_private_key", generate)
    monkeypatch.setattr(dsa, "generate_private_key", lambda bits: asked.append((0, bits)) or OF_AUTHORITY)
    assert render('{{ genPrivateKey "rsa" }}{{ genPrivateKey "dsa" }}{{ (genCA "a" 1).Key }}') == 3 * KEYS["ca"]
    assert asked == [(65537, 4096), (0, 2048), (65537, 2048)]


def test_text_is_encrypted_with_the_first_32_bytes_of_the_password() -> None:
    password = "0123456789" * 4
    again = f'range list "{password[:32]}" "{password[:33]}" }}}}{{{{ decryptAES . $e }}}},{{{{ end'
    assert render(f'{{{{ $e := encryptAES "{password}" "the text" }}}}{{{{ {again} }}}}') == "the text,the text,"
