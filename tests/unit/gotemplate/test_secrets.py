"""Template functions for keys, certificates and passwords."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from gotemplate import TemplateError, parse
from gotemplate.functions import SPRIG, secrets

AUTHORITY_KEY, SIGNER_KEY = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
KEYS: dict[str, Any] = {
    "ca": secrets._key_text(AUTHORITY_KEY),
    "signer": secrets._key_text(SIGNER_KEY),
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
    """Return the certificate of a pair after checking that it belongs to the key."""
    cert, key = render(f"{{{{ $c := {text} }}}}{{{{ $c.Cert }}}}|{{{{ $c.Key }}}}").split("|")
    loaded = x509.load_pem_x509_certificate(cert.encode())
    assert loaded.public_key() == serialization.load_pem_private_key(key.encode(), None).public_key()
    return loaded


def certificate_fields(cert: x509.Certificate) -> dict[str, Any]:
    extensions = cert.extensions
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    names = [e for e in extensions if isinstance(e.value, x509.SubjectAlternativeName)]
    return {
        "subject": cert.subject.rfc4514_string(),
        "issuer": cert.issuer.rfc4514_string(),
        "days": (cert.not_valid_after_utc - cert.not_valid_before_utc).days,
        "usages": [name for name in USAGES if getattr(usage.value, name)],
        "authority": (constraints.value.ca, constraints.value.path_length),
        "purposes": [purpose._name for purpose in purposes.value],
        "critical": [usage.critical, constraints.critical, purposes.critical, *(e.critical for e in names)],
        "names": [str(name.value) for e in names for name in e.value],
    }


SERVER_FIELDS = {
    "usages": ["digital_signature", "key_encipherment"],
    "authority": (False, None),
    "purposes": ["serverAuth", "clientAuth"],
}
AUTHORITY_FIELDS = {
    **SERVER_FIELDS,
    "usages": ["digital_signature", "key_encipherment", "key_cert_sign"],
    "authority": (True, None),
}
WITH_NAMES = {"critical": [True, True, False, False], "names": ["10.0.0.1", "::1", "a.example", "b.example"]}
WITHOUT_NAMES = {"critical": [True, True, False], "names": []}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('genCA "ca" 7', {"subject": "CN=ca", "issuer": "CN=ca", "days": 7, **AUTHORITY_FIELDS, **WITHOUT_NAMES}),
        (
            'genCAWithKey "ca" 7 .ca',
            {"subject": "CN=ca", "issuer": "CN=ca", "days": 7, **AUTHORITY_FIELDS, **WITHOUT_NAMES},
        ),
        (
            'genSelfSignedCert "own" .ips .names 8',
            {"subject": "CN=own", "issuer": "CN=own", "days": 8, **SERVER_FIELDS, **WITH_NAMES},
        ),
        (
            'genSelfSignedCertWithKey "own" .ips .names 8 .ca',
            {"subject": "CN=own", "issuer": "CN=own", "days": 8, **SERVER_FIELDS, **WITH_NAMES},
        ),
        (
            'genSelfSignedCert "own" nil nil 8',
            {"subject": "CN=own", "issuer": "CN=own", "days": 8, **SERVER_FIELDS, **WITHOUT_NAMES},
        ),
        (
            'genSignedCert "one" .ips .names 9 (genCAWithKey "ca" 7 .ca)',
            {"subject": "CN=one", "issuer": "CN=ca", "days": 9, **SERVER_FIELDS, **WITH_NAMES},
        ),
        (
            'genSignedCertWithKey "one" .ips .names 9 (genCAWithKey "ca" 7 .ca) .signer',
            {"subject": "CN=one", "issuer": "CN=ca", "days": 9, **SERVER_FIELDS, **WITH_NAMES},
        ),
        (
            'genSignedCertWithKey "one" nil nil 9 (genCAWithKey "ca" 7 .signer) .ca',
            {"subject": "CN=one", "issuer": "CN=ca", "days": 9, **SERVER_FIELDS, **WITHOUT_NAMES},
        ),
    ],
)
def test_certificate_fields(text: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        secrets, "_new_key", {"": ec.generate_private_key(ec.SECP256R1())}.__getitem__
    )  # generating an RSA key is slow
    cert = certificate(text)
    assert certificate_fields(cert) == expected
    assert abs(datetime.datetime.now(datetime.UTC) - cert.not_valid_before_utc) < datetime.timedelta(minutes=5)


@pytest.mark.parametrize(("key", "signer"), [("ca", "signer"), ("signer", "ca")])
def test_certificate_is_signed_by_the_authority_key(key: str, signer: str) -> None:
    pair = f'$a := genCAWithKey "ca" 7 .{signer} }}}}{{{{ $c := genSignedCertWithKey "one" nil nil 9 $a .{key} '
    leaf, authority = render(f"{{{{ {pair} }}}}{{{{ $c.Cert }}}}|{{{{ $a.Cert }}}}").split("|")
    load = x509.load_pem_x509_certificate
    load(leaf.encode()).verify_directly_issued_by(load(authority.encode()))


def test_build_custom_cert() -> None:
    call = "buildCustomCert (b64enc $a.Cert) (b64enc $a.Key)"
    output = render(
        f'{{{{ $a := genCAWithKey "ca" 7 .ca }}}}{{{{ $b := {call} }}}}{{{{ eq $a.Cert $b.Cert }}}} {{{{ eq $a.Key $b.Key }}}}'
    )
    assert output == "true true"
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
def test_invalid_certificates_and_keys(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as error:
        render(f"{{{{ {text} }}}}")
    assert message in str(error.value)


def test_key_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def generate(exponent: int, bits: int) -> Any:
        calls.append((exponent, bits))
        return AUTHORITY_KEY

    monkeypatch.setattr(rsa, "generate_private_key", generate)
    monkeypatch.setattr(dsa, "generate_private_key", lambda bits: calls.append((0, bits)) or AUTHORITY_KEY)
    assert render('{{ genPrivateKey "rsa" }}{{ genPrivateKey "dsa" }}{{ (genCA "a" 1).Key }}') == 3 * KEYS["ca"]
    assert calls == [(65537, 4096), (0, 2048), (65537, 2048)]


def test_encryption_uses_32_bytes_of_the_password() -> None:
    password = "0123456789" * 4
    decryption = f'range list "{password[:32]}" "{password[:33]}" }}}}{{{{ decryptAES . $e }}}},{{{{ end'
    assert render(f'{{{{ $e := encryptAES "{password}" "the text" }}}}{{{{ {decryption} }}}}') == "the text,the text,"
