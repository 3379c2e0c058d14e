"""A stub for a proxy's agent: a mesh root, and workload certificates served over SDS on a Unix socket."""

from __future__ import annotations

import datetime
import pathlib
from concurrent import futures
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import discovery_pb2
from envoy.service.secret.v3 import sds_pb2_grpc

SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"


class Root:
    """A certificate authority for one test."""

    def __init__(self) -> None:
        self.key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "cluster.local")])
        builder = self._builder(self.name, self.key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.certificate = builder.sign(self.key, hashes.SHA256())

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return x509.CertificateBuilder(
            self.name,
            subject,
            key.public_key(),
            x509.random_serial_number(),
            now - datetime.timedelta(minutes=2),
            now + datetime.timedelta(days=1),
        )

    @classmethod
    def load(cls, folder: pathlib.Path) -> Root:
        """Return the root that a control plane stores in a folder."""
        root = cls.__new__(cls)
        root.certificate = x509.load_pem_x509_certificate((folder / "ca-cert.pem").read_bytes())
        key = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        root.key, root.name = key, root.certificate.subject
        return root

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, identity: str) -> tuple[bytes, bytes]:
        """Return the chain and private key, in PEM, for a SPIFFE identity."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)])
        leaf = self._builder(x509.Name([]), key).add_extension(names, critical=True).sign(self.key, hashes.SHA256())
        private_key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return leaf.public_bytes(serialization.Encoding.PEM), private_key


class Agent(sds_pb2_grpc.SecretDiscoveryServiceServicer):
    """Serves `default` and `ROOTCA` to one Envoy."""

    def __init__(self, root: Root, identity: str, socket: pathlib.Path) -> None:
        chain, key = root.issue(identity)
        pair = {"certificate_chain": {"inline_bytes": chain}, "private_key": {"inline_bytes": key}}
        self._secrets = {
            "default": secret_pb2.Secret(name="default", tls_certificate=pair),
            "ROOTCA": secret_pb2.Secret(name="ROOTCA", validation_context={"trusted_ca": {"inline_bytes": root.pem}}),
        }
        self.socket = str(socket)
        self._server = grpc.server(futures.ThreadPoolExecutor(16))
        sds_pb2_grpc.add_SecretDiscoveryServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def StreamSecrets(self, requests: Any, context: Any) -> Any:
        for request in requests:
            if request.response_nonce:
                continue
            response = discovery_pb2.DiscoveryResponse(type_url=SECRET, version_info="1", nonce="1")
            for name in request.resource_names:
                response.resources.add().Pack(self._secrets[name])
            yield response

    def stop(self) -> None:
        self._server.stop(None)
