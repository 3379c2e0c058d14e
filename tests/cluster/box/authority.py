"""The cluster's certificate authority, and the keys of service accounts."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

DAY = datetime.timedelta(days=1)


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name("kubernetes")
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate, self.key = folder / "ca.crt", folder / "ca.key"
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        self.key.write_bytes(_key_pem(self._key))

    def issue(self, name: str, hosts: Sequence[str]) -> tuple[pathlib.Path, pathlib.Path]:
        """Return the files of a server's certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = self._builder(_name(name), key.public_key()).add_extension(names, critical=False)
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        files[0].write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        files[1].write_bytes(_key_pem(key))
        return files

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number(), now - DAY, now + 30 * DAY)


def write_account_key(path: pathlib.Path) -> pathlib.Path:
    """Write the key that signs the tokens of service accounts."""
    path.write_bytes(_key_pem(rsa.generate_private_key(65537, 2048)))
    return path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
