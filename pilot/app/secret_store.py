"""Where the self-signed root is kept on Kubernetes: in a Secret that all replicas share."""
from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from ca.errors import KeyMaterialError
from ca.pem import bundle_pem, certificate_pem, key_pem, load_bundle, load_key
from ca.signer import Signer
from ca.verify import check_signer
from pilot.kube.client import Client
from pilot.kube.errors import Conflict, KubeError, NotFound

NAME, TYPE = "istio-ca-secret", "istio.io/ca-root"
CERTIFICATE, KEY = "ca-cert.pem", "ca-key.pem"
T = TypeVar("T")


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, bytes] = {}


class SecretStore:
    """Keeps one self-signed signer as keys ca-cert.pem and ca-key.pem. It is called from other threads than that of `loop`, in which the client
    lives."""

    def __init__(self, client: Client, namespace: str, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._namespace, self._loop = client, namespace, loop
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._version = ""

    def load(self) -> Signer | None:
        """Returns the signer that is kept, or None where nothing is. KeyMaterialError where it is broken or cannot be read."""
        where = f"Secret {self._namespace}/{NAME}"
        try:
            answer = self._wait_for(self._client.call("GET", f"{self._collection}/{NAME}"))
        except NotFound:
            return None
        except KubeError as error:
            raise KeyMaterialError(f"{where}: {error}") from error
        secret = msgspec.json.decode(answer, type=_Secret)
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
        data = {CERTIFICATE: certificate, KEY: key_pem(signer.key), "cert-chain.pem": b"", "key.pem": b"", "root-cert.pem": bundle_pem(signer.roots)}
        metadata = {"name": NAME, "namespace": self._namespace, **({"resourceVersion": self._version} if self._version else {})}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": TYPE, "data": encoded})
        method, path = ("PUT", f"{self._collection}/{NAME}") if self._version else ("POST", self._collection)
        try:
            answer = self._wait_for(self._client.call(method, path, body=body))
        except Conflict as error:
            raise KeyMaterialError(f"Secret {self._namespace}/{NAME}: another replica has changed it") from error
        except KubeError as error:
            raise KeyMaterialError(f"Secret {self._namespace}/{NAME}: {error}") from error
        self._version = msgspec.json.decode(answer, type=_Secret).metadata.resource_version

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
