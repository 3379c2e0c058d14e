"""Server and client certificates, and Secrets and ConfigMaps that contain them."""

from __future__ import annotations

import base64
import datetime
import functools
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import ocsp
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from msgspec.structs import replace

from pilot.mesh.model.proxy import Proxy
from testing.mesh.world import World, proxy

DAY = datetime.timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@functools.cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def key_pem(key: Any) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def pem(content: Any) -> bytes:
    return content.public_bytes(serialization.Encoding.PEM)


class IssuedCertificate:
    """A certificate with its key."""

    def __init__(self, certificate: x509.Certificate, key: Any) -> None:
        self.certificate, self.key = certificate, key
        self.chain, self.private_key = pem(certificate), key_pem(key)


class Authority:
    """A root that issues currently valid certificates."""

    def __init__(self, organization: str = "root") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization)])
        builder = self._builder(self.name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self.certificate = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.pem = pem(self.certificate)

    def _builder(self, subject: x509.Name, key: Any, end: datetime.timedelta = DAY) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return x509.CertificateBuilder(
            self.name, subject, key.public_key(), x509.random_serial_number(), now - 2 * DAY, now + end
        )

    def issue(
        self, host: str, key: Any = None, uri: str = "", end: datetime.timedelta = DAY, must_staple: bool = False
    ) -> IssuedCertificate:
        """Return a certificate for a host name or a URI."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        alt_name = x509.UniformResourceIdentifier(uri) if uri else x509.DNSName(host)
        builder = self._builder(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)]), key, end)
        builder = builder.add_extension(x509.SubjectAlternativeName([alt_name]), critical=False)
        if must_staple:
            builder = builder.add_extension(x509.TLSFeature([x509.TLSFeatureType.status_request]), critical=False)
        return IssuedCertificate(builder.sign(self._key, hashes.SHA256()), key)

    def crl(self, *revoked: IssuedCertificate) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder(self.name, now - DAY, now + DAY)
        for certificate in revoked:
            entry = x509.RevokedCertificateBuilder(certificate.certificate.serial_number, now - DAY)
            builder = builder.add_revoked_certificate(entry.build())
        return pem(builder.sign(self._key, hashes.SHA256()))

    def staple(self, issued: IssuedCertificate) -> bytes:
        """Return an OCSP response with the status "good"."""
        now = datetime.datetime.now(datetime.UTC)
        builder = ocsp.OCSPResponseBuilder().add_response(
            issued.certificate,
            self.certificate,
            hashes.SHA256(),
            ocsp.OCSPCertStatus.GOOD,
            now - DAY,
            now + DAY,
            None,
            None,
        )
        response = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, self.certificate).sign(
            self._key, hashes.SHA256()
        )
        return response.public_bytes(serialization.Encoding.DER)


def tls_secret(name: str, issued: IssuedCertificate, namespace: str = "edge", **more: bytes) -> dict[str, Any]:
    """Return a Secret of type kubernetes.io/tls.

    `more` is further data; in keys, `_` stands for `.` and `__` for `-`.
    """
    data = {"tls.crt": issued.chain, "tls.key": issued.private_key, **{_data_key(k): v for k, v in more.items()}}
    return data_secret(name, data, namespace, "kubernetes.io/tls")


def _data_key(text: str) -> str:
    return text.replace("__", "-").replace("_", ".")


def data_secret(name: str, data: dict[str, bytes], namespace: str = "edge", kind: str = "Opaque") -> dict[str, Any]:
    encoded = {key: base64.b64encode(content).decode() for key, content in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": kind,
        "data": encoded,
    }


def config_map(name: str, data: dict[str, str], namespace: str = "edge") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def edge_router(
    name: str = "edge-0",
    namespace: str = "edge",
    account: str = "edge",
    ip: str = "10.1.0.9",
    cluster: str = "Kubernetes",
) -> Proxy:
    """Return a router with the authenticated identity of an account."""
    router = proxy("router", name, namespace, ip, {"istio": "ingress"}, CLUSTER_ID=cluster)
    return replace(router, identity=f"spiffe://cluster.local/ns/{namespace}/sa/{account}")


def served_secret(world: World, name: str, client: Proxy | None = None) -> secret_pb2.Secret | None:
    """Return the secret that a proxy receives for a name."""
    return world.secrets(world.connect(client or edge_router()), name).get(name)
