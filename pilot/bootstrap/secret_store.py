"""Where the self-signed root is kept on Kubernetes: in a Secret that all replicas share."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from ca.errors import KeyMaterialError
from ca.pem import bundle_pem, certificate_pem, key_pem, load_bundle, load_key
from ca.signer import Signer
from ca.verify import check_signer
from pilot.kube.client import ApiClient
from pilot.kube.errors import Conflict, KubeError, NotFound

NAME, TYPE = "istio-ca-secret", "istio.io/ca-root"
CACERTS, GENERATED = "cacerts", "istio-generated"
"""The Secret of a signing certificate that operators plug in, and the key that tells a self-signed one from that."""
CERTIFICATE, KEY = "ca-cert.pem", "ca-key.pem"
T = TypeVar("T")


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, bytes] = {}


class SecretStore:
    """Keeps one self-signed signer as keys ca-cert.pem and ca-key.pem of a Secret, the first of `names` that there is, else the last. It is called
    from other threads than that of `loop`, in which the client lives."""

    def __init__(
        self, client: ApiClient, namespace: str, loop: asyncio.AbstractEventLoop, names: Sequence[str] = (NAME,)
    ) -> None:
        self._client, self._namespace, self._loop, self._names = client, namespace, loop, names
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._name, self._version = names[-1], ""

    def load(self) -> Signer | None:
        """Returns the signer that is kept, or None where nothing is. KeyMaterialError where it is broken or cannot be read."""
        for name in self._names:
            where = f"Secret {self._namespace}/{name}"
            try:
                answer = self._wait_for(self._client.call("GET", f"{self._collection}/{name}"))
            except NotFound:
                continue
            except KubeError as error:
                raise KeyMaterialError(f"{where}: {error}") from error
            self._name = name
            return self._read(msgspec.json.decode(answer, type=_Secret), where)
        return None

    def _read(self, secret: _Secret, where: str) -> Signer:
        if self._name == CACERTS and GENERATED not in secret.data:
            raise KeyMaterialError(f"{where} is plugged in by somebody: it must be mounted at ROOT_CA_DIR")
        missing = [key for key in (CERTIFICATE, KEY) if not secret.data.get(key)]
        if missing:
            raise KeyMaterialError(f"{where} has no {' and no '.join(missing)}")
        root = load_bundle(secret.data[CERTIFICATE], where)[0]
        signer = Signer(root, load_key(secret.data[KEY], where), (), (root,))
        check_signer(signer, where)
        self._version = secret.metadata.resource_version
        return signer

    def save(self, signer: Signer) -> None:
        """Keeps a signer in the place of the one that was loaded. KeyMaterialError where that cannot be, as when another replica was faster."""
        certificate = certificate_pem(signer.certificate)
        data = {
            CERTIFICATE: certificate,
            KEY: key_pem(signer.key),
            "cert-chain.pem": b"",
            "key.pem": b"",
            "root-cert.pem": bundle_pem(signer.roots),
        }
        if self._name == CACERTS:
            data[GENERATED] = b""
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            **({"resourceVersion": self._version} if self._version else {}),
        }
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        body = msgspec.json.encode(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": TYPE, "data": encoded}
        )
        method, path = ("PUT", f"{self._collection}/{self._name}") if self._version else ("POST", self._collection)
        try:
            answer = self._wait_for(self._client.call(method, path, body=body))
        except Conflict as error:
            raise KeyMaterialError(f"Secret {self._namespace}/{self._name}: another replica has changed it") from error
        except KubeError as error:
            raise KeyMaterialError(f"Secret {self._namespace}/{self._name}: {error}") from error
        self._version = msgspec.json.decode(answer, type=_Secret).metadata.resource_version

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
