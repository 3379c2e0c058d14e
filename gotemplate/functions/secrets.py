"""Sprig's functions for keys, certificates, passwords and random identifiers.
https://masterminds.github.io/sprig/crypto.html"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import ipaddress
import os
import uuid
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives import hashes, padding, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gotemplate.errors import ActionError
from gotemplate.function import Function, takes
from gotemplate.values import GoStruct

_TEMPLATES = {
    "maximum": ("anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"),
    "long": (
        "CvcvnoCvcvCvcv",
        "CvcvCvcvnoCvcv",
        "CvcvCvcvCvcvno",
        "CvccnoCvcvCvcv",
        "CvccCvcvnoCvcv",
        "CvccCvcvCvcvno",
        "CvcvnoCvccCvcv",
        "CvcvCvccnoCvcv",
        "CvcvCvccCvcvno",
        "CvcvnoCvcvCvcc",
        "CvcvCvcvnoCvcc",
        "CvcvCvcvCvccno",
        "CvccnoCvccCvcv",
        "CvccCvccnoCvcv",
        "CvccCvccCvcvno",
        "CvcvnoCvccCvcc",
        "CvcvCvccnoCvcc",
        "CvcvCvccCvccno",
        "CvccnoCvcvCvcc",
        "CvccCvcvnoCvcc",
        "CvccCvcvCvccno",
    ),
    "medium": ("CvcnoCvc", "CvcCvcno"),
    "short": ("Cvcn",),
    "basic": ("aaanaaan", "aannaaan", "aaannaaa"),
    "pin": ("nnnn",),
}
_CHARACTERS = {
    "V": "AEIOU",
    "C": "BCDFGHJKLMNPQRSTVWXYZ",
    "v": "aeiou",
    "c": "bcdfghjklmnpqrstvwxyz",
    "A": "AEIOUBCDFGHJKLMNPQRSTVWXYZ",
    "a": "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
    "n": "0123456789",
    "o": "@&%?,=[]_:-+*$#!'^~;()/.",
    "x": "AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
}
_SCOPE = b"com.lyndir.masterpassword"


class PemPair(GoStruct):
    """A certificate and its key in PEM, with the fields Cert and Key."""

    type_name = "sprig.certificate"

    def __init__(self, cert: str, key: str) -> None:
        self.cert, self.key = cert, key

    def member(self, name: str) -> Any:
        """Return the value of the field Cert or Key."""
        if name not in ("Cert", "Key"):
            raise self.no_member(name)
        return self.cert if name == "Cert" else self.key

    def plain(self) -> dict[str, str]:
        """Return the certificate and the key, keyed by field name."""
        return {"Cert": self.cert, "Key": self.key}


def _new_key(kind: str) -> Any:
    match kind:
        case "" | "rsa":
            return rsa.generate_private_key(65537, 4096 if kind else 2048)
        case "dsa":
            return dsa.generate_private_key(2048)
        case "ecdsa":
            return ec.generate_private_key(ec.SECP256R1())
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
    raise ValueError(f"Unknown type {kind}")


def _key_text(key: Any) -> str:
    old = (
        serialization.PrivateFormat.PKCS8
        if isinstance(key, ed25519.Ed25519PrivateKey)
        else serialization.PrivateFormat.TraditionalOpenSSL
    )
    text: bytes = key.private_bytes(serialization.Encoding.PEM, old, serialization.NoEncryption())
    return text.decode()


def _private_key(kind: str) -> str:
    try:
        return _key_text(_new_key(kind))
    except ValueError as error:
        return str(error)


def _load_key(text: str) -> Any:
    try:
        return serialization.load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, InvalidKey) as error:
        raise ValueError(f"unable to parse private key: {error}") from error


def _names(ips: Any, dns: Any) -> list[x509.GeneralName]:
    return [
        *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips or ()),
        *(x509.DNSName(name) for name in dns or ()),
    ]


def _issue(
    name: str,
    ips: Any,
    dns: Any,
    days: int,
    key: Any,
    signer: tuple[x509.Certificate, Any] | None = None,
    authority: bool = False,
) -> PemPair:
    """Issue a certificate for a key. An authority signs the certificate, or it is self-signed."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    issuer = signer[0].subject if signer else subject
    builder = x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=days)
    )
    usage = x509.KeyUsage(True, False, True, False, False, authority, False, False, False)
    builder = builder.add_extension(usage, True).add_extension(x509.BasicConstraints(authority, None), True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False
    )
    if alternative_names := _names(ips, dns):
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative_names), False)
    signing = signer[1] if signer else key
    certificate = builder.sign(signing, None if isinstance(signing, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    return PemPair(certificate.public_bytes(serialization.Encoding.PEM).decode(), _key_text(key))


def _authority(pair: Any) -> tuple[x509.Certificate, Any]:
    if not isinstance(pair, PemPair):
        raise ActionError("wrong type for value; expected sprig.certificate")
    return x509.load_pem_x509_certificate(pair.cert.encode()), _load_key(pair.key)


def _built(cert: str, key: str) -> PemPair:
    """Return a certificate and a key, which are both encoded in base64, as a pair."""
    pair = PemPair(base64.b64decode(cert).decode(), base64.b64decode(key).decode())
    _authority(pair)
    return pair


def _derived(counter: int, kind: str, password: str, user: str, site: str) -> str:
    """Derive the password for a site from a master password."""
    templates = _TEMPLATES.get(kind)
    if templates is None:
        return f"cannot find password template {kind}"
    salt = _SCOPE + len(user.encode()).to_bytes(4, "big") + user.encode()
    key = hashlib.scrypt(password.encode(), salt=salt, n=32768, r=8, p=2, dklen=64, maxmem=2**27)
    message = _SCOPE + len(site.encode()).to_bytes(4, "big") + site.encode() + counter.to_bytes(4, "big")
    seed = hmac.digest(key, message, "sha256")
    template = templates[seed[0] % len(templates)]
    return "".join(_CHARACTERS[c][seed[i + 1] % len(_CHARACTERS[c])] for i, c in enumerate(template))


def _encrypted(password: str, text: str) -> str:
    key, iv = _aes_key(password), os.urandom(16)
    pad = padding.PKCS7(128).padder()
    data = pad.update(text.encode()) + pad.finalize()
    worker = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    return base64.b64encode(iv + worker.update(data) + worker.finalize()).decode()


def _decrypted(password: str, text: str) -> str:
    data = base64.b64decode(text)
    worker = Cipher(algorithms.AES(_aes_key(password)), modes.CBC(data[:16])).decryptor()
    unpad = padding.PKCS7(128).unpadder()
    return (unpad.update(worker.update(data[16:]) + worker.finalize()) + unpad.finalize()).decode()


def _aes_key(password: str) -> bytes:
    return password.encode()[:32].ljust(32, b"\0")


def _no_bcrypt(*_: str) -> str:
    raise ValueError("bcrypt is not supported")


SECRETS: dict[str, Function] = {
    "uuidv4": takes("", lambda: str(uuid.uuid4())),
    "randBytes": takes("int", lambda count: base64.b64encode(os.urandom(count)).decode()),
    "genPrivateKey": takes("string", _private_key),
    "genCA": takes("string int", lambda name, days: _issue(name, (), (), days, _new_key(""), authority=True)),
    "genCAWithKey": takes(
        "string int string", lambda name, days, key: _issue(name, (), (), days, _load_key(key), authority=True)
    ),
    "genSelfSignedCert": takes(
        "string list list int", lambda name, ips, dns, days: _issue(name, ips, dns, days, _new_key(""))
    ),
    "genSelfSignedCertWithKey": takes(
        "string list list int string", lambda name, ips, dns, days, key: _issue(name, ips, dns, days, _load_key(key))
    ),
    "genSignedCert": takes(
        "string list list int any",
        lambda name, ips, dns, days, ca: _issue(name, ips, dns, days, _new_key(""), _authority(ca)),
    ),
    "genSignedCertWithKey": takes(
        "string list list int any string",
        lambda name, ips, dns, days, ca, key: _issue(name, ips, dns, days, _load_key(key), _authority(ca)),
    ),
    "buildCustomCert": takes("string string", _built),
    "derivePassword": takes("int string string string string", _derived),
    "encryptAES": takes("string string", _encrypted),
    "decryptAES": takes("string string", _decrypted),
    "bcrypt": takes("string", _no_bcrypt),
    "htpasswd": takes("string string", _no_bcrypt),
}
