"""Secrets of the control plane, and the storage of the self-signed root in a Secret that all replicas share."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ca.errors import KeyMaterialError
from ca.pem import bundle_pem, certificate_pem, key_pem, load_bundle, load_key
from ca.signer import Signer
from ca.verify import check_signer
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import Conflict, KubeError, NotFound

SELF_SIGNED_SECRET, SECRET_TYPE = "istio-ca-secret", "istio.io/ca-root"
PLUGGED_IN_SECRET, GENERATED_MARKER = "cacerts", "istio-generated"
"""Name of the Secret with a signing certificate. If the certificate is self-signed, the marker is a key of the Secret.
"""
CERTIFICATE, KEY = "ca-cert.pem", "ca-key.pem"
ReadSecret = Callable[[str], Awaitable[Mapping[str, bytes]]]
"""Returns the data of a Secret in the control plane's namespace, or {} if it does not exist. Raises SecretError."""
T = TypeVar("T")


class SecretError(Exception):
    """A Secret cannot be read."""


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, bytes] = {}


class SecretStore:
    """Stores a self-signed signer in a Secret, as ca-cert.pem and ca-key.pem.

    The Secret is the first of `names` that exists, or else the last of them. The client runs on `loop`, so call the
    methods from another thread.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        loop: asyncio.AbstractEventLoop,
        names: Sequence[str] = (SELF_SIGNED_SECRET,),
    ) -> None:
        self._client, self._namespace, self._loop, self._names = client, namespace, loop, names
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._name, self._version = names[-1], ""

    def load(self) -> Signer | None:
        """Return the stored signer, or None if there is none. Raise KeyMaterialError if it is invalid or unreadable."""
        for name in self._names:
            label = f"Secret {self._namespace}/{name}"
            try:
                body = self._wait_for(self._client.call("GET", f"{self._collection}/{name}"))
            except NotFound:
                continue
            except KubeError as error:
                raise KeyMaterialError(f"{label}: {error}") from error
            self._name = name
            return self._read(msgspec.json.decode(body, type=_Secret), label)
        return None

    def _read(self, secret: _Secret, label: str) -> Signer:
        if self._name == PLUGGED_IN_SECRET and GENERATED_MARKER not in secret.data:
            raise KeyMaterialError(f"{label} has a plugged-in certificate, which must be mounted at ROOT_CA_DIR")
        missing = [key for key in (CERTIFICATE, KEY) if not secret.data.get(key)]
        if missing:
            raise KeyMaterialError(f"{label} has no {' and no '.join(missing)}")
        root = load_bundle(secret.data[CERTIFICATE], label)[0]
        signer = Signer(root, load_key(secret.data[KEY], label), (), (root,))
        check_signer(signer, label)
        self._version = secret.metadata.resource_version
        return signer

    def save(self, signer: Signer) -> None:
        """Replace the stored signer.

        Raise KeyMaterialError if the Secret cannot be written or if another replica changed it after `load`.
        """
        certificate = certificate_pem(signer.certificate)
        data = {
            CERTIFICATE: certificate,
            KEY: key_pem(signer.key),
            "cert-chain.pem": b"",
            "key.pem": b"",
            "root-cert.pem": bundle_pem(signer.roots),
        }
        if self._name == PLUGGED_IN_SECRET:
            data[GENERATED_MARKER] = b""
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            **({"resourceVersion": self._version} if self._version else {}),
        }
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        body = msgspec.json.encode(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": SECRET_TYPE, "data": encoded}
        )
        method, path = ("PUT", f"{self._collection}/{self._name}") if self._version else ("POST", self._collection)
        try:
            answer = self._wait_for(self._client.call(method, path, body=body))
        except Conflict as error:
            raise KeyMaterialError(f"Secret {self._namespace}/{self._name}: another replica changed it") from error
        except KubeError as error:
            raise KeyMaterialError(f"Secret {self._namespace}/{self._name}: {error}") from error
        self._version = msgspec.json.decode(answer, type=_Secret).metadata.resource_version

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
