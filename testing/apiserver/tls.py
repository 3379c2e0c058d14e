"""A self-signed serving certificate for the API server."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import pathlib
import ssl
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Certificate(NamedTuple):
    """A self-signed certificate for 127.0.0.1 and its key, in PEM."""

    chain: bytes
    key: bytes

    def context(self, folder: pathlib.Path) -> ssl.SSLContext:
        """Return a server's TLS context, loaded from files written to a folder."""
        (folder / "tls.crt").write_bytes(self.chain)
        (folder / "tls.key").write_bytes(self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        return context

    @property
    def data(self) -> str:
        """Return the certificate as a kubeconfig's `certificate-authority-data`."""
        return base64.b64encode(self.chain).decode()


def make_certificate() -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "apiserver")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now - datetime.timedelta(hours=1), now + datetime.timedelta(days=1)
    )
    certificate = (
        builder.add_extension(names, False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM), private_key)
