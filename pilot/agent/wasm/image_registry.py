"""A client for image registries.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from pilot.agent.wasm.docker_credentials import Login
from pilot.agent.wasm.http_fetcher import FetchedResponse, FetchError, HttpFetcher

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_DEFAULT_REGISTRY, _DOCKER_HUB = "index.docker.io", ("docker.io", "index.docker.io")
_ENDPOINTS = {"index.docker.io": "registry-1.docker.io"}
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_PARAMETER = re.compile(r'(?<!\w)(\w+)="([^"]*)"')
_MAX_MANIFEST_BYTES = 4 * 1024 * 1024


class ImageReference(NamedTuple):
    """A reference to an image. `digest` is "sha256:…", or "" if the reference has only a tag."""

    registry: str
    repository: str
    tag: str = "latest"
    digest: str = ""

    @property
    def name(self) -> str:
        """Return the reference without tag and digest."""
        return f"{self.registry}/{self.repository}"

    @property
    def digest_or_tag(self) -> str:
        """Return the digest if there is one, or else the tag. It identifies the manifest in requests."""
        return self.digest or self.tag


def parse_image(text: str) -> ImageReference:
    """Parse a reference of the form `registry/repository:tag@digest`.

    As in Docker, the registry defaults to Docker Hub if the first part is not a host. Raises ValueError.
    """
    name_and_tag, _, digest = text.partition("@")
    registry, slash, path = name_and_tag.partition("/")
    if not slash or not ("." in registry or ":" in registry or registry == "localhost"):
        registry, path = _DEFAULT_REGISTRY, name_and_tag
    registry = _DEFAULT_REGISTRY if registry in _DOCKER_HUB else registry
    repository, colon, tag = path.partition(":")
    if registry == _DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if (
        not _REPOSITORY.fullmatch(repository)
        or (colon and not _TAG.fullmatch(tag))
        or ("@" in text and not _DIGEST.fullmatch(digest))
    ):
        raise ValueError(f"{text!r} is not a valid image reference")
    return ImageReference(registry, repository, tag or "latest", digest)


class Platform(msgspec.Struct):
    os: str = ""
    architecture: str = ""


class Descriptor(msgspec.Struct, rename="camel"):
    """A reference in a manifest to a layer or to another manifest."""

    digest: str
    size: int = 0
    media_type: str = ""
    platform: Platform | None = None


class Manifest(msgspec.Struct, rename="camel"):
    """The manifest of an image, which has `layers`, or an index, which has `manifests`. `digest` is not part of the
    JSON."""

    layers: list[Descriptor] = []
    manifests: list[Descriptor] = []
    digest: str = ""


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class RegistryClient:
    """Fetches the manifest and layers of one image before a deadline.

    If `insecure`, the registry's certificate is not verified, and the client falls back to plain HTTP.
    """

    def __init__(
        self, fetcher: HttpFetcher, image: ImageReference, login: Login | None, deadline: float, insecure: bool = False
    ) -> None:
        self._fetcher, self._image, self._login = fetcher, image, login
        self._deadline, self._insecure = deadline, insecure
        self._scheme, self._authorization = "https", ""

    def manifest(self) -> tuple[Manifest, frozenset[str]]:
        """Return the manifest of the image, and the digests that identify the image: the manifest's and, if any, the
        index's.

        Raises FetchError if a manifest is unavailable or does not match its digest.
        """
        manifest = self._fetch_manifest(self._image.digest_or_tag)
        digests = {manifest.digest}
        if manifest.manifests:
            manifest = self._fetch_manifest(_select_platform(manifest.manifests).digest)
            digests.add(manifest.digest)
        return manifest, frozenset(digests)

    def _fetch_manifest(self, reference: str) -> Manifest:
        response = self._get(f"manifests/{reference}", {"Accept": ", ".join((*MANIFESTS, *INDEXES))})
        if len(response.body) > _MAX_MANIFEST_BYTES:
            raise FetchError(
                f"the manifest of {self._image.name} is larger than {_MAX_MANIFEST_BYTES} bytes", "manifest_failure"
            )
        digest = f"sha256:{hashlib.sha256(response.body).hexdigest()}"
        if ":" in reference and reference != digest:
            raise FetchError(f"the manifest of {self._image.name} does not match its digest", "checksum_mismatch")
        try:
            manifest = msgspec.json.decode(response.body, type=Manifest)
        except msgspec.MsgspecError as error:
            raise FetchError(f"the manifest of {self._image.name} is invalid", "manifest_failure") from error
        manifest.digest = digest
        return manifest

    def blob(self, descriptor: Descriptor) -> bytes:
        """Return a layer. Raises FetchError if it is unavailable or does not match its digest."""
        body = self._get(f"blobs/{descriptor.digest}", {}).body
        if descriptor.digest != f"sha256:{hashlib.sha256(body).hexdigest()}":
            raise FetchError(f"a layer of {self._image.name} does not match its digest", "checksum_mismatch")
        return body

    def _get(self, path: str, headers: Mapping[str, str]) -> FetchedResponse:
        response = self._request(path, headers)
        if response.status == 401 and not self._authorization:
            self._authorization = self._authorize(response.headers.get("www-authenticate", ""))
            response = self._request(path, headers)
        if response.status != 200:
            raise FetchError(
                f"the registry of {self._image.name} returned status {response.status}",
                "manifest_failure" if path.startswith("manifests") else "download_failure",
                response.status >= 500,
            )
        return response

    def _request(self, path: str, headers: Mapping[str, str]) -> FetchedResponse:
        request_headers = {**headers, **({"Authorization": self._authorization} if self._authorization else {})}
        host = _ENDPOINTS.get(self._image.registry, self._image.registry)
        try:
            return self._fetcher.get(
                f"{self._scheme}://{host}/v2/{self._image.repository}/{path}",
                self._deadline,
                request_headers,
                self._insecure,
            )
        except FetchError as error:
            if not (self._insecure and self._scheme == "https" and isinstance(error.__cause__, ssl.SSLError)):
                raise
        self._scheme = "http"
        return self._request(path, headers)

    def _authorize(self, challenge: str) -> str:
        """Return the Authorization header for a challenge: the login, or a token from the server that the challenge
        names."""
        scheme, _, text = challenge.partition(" ")
        if scheme.lower() == "basic":
            if self._login is None:
                raise FetchError(
                    f"the registry of {self._image.name} requires a login, but none is configured", "manifest_failure"
                )
            return self._login.basic_authorization
        parameters = dict(_PARAMETER.findall(text))
        if scheme.lower() != "bearer" or urlsplit(parameters.get("realm", "")).scheme not in (
            "https",
            *(("http",) if self._scheme == "http" else ()),
        ):
            raise FetchError(
                f"the registry of {self._image.name} requires an unsupported authentication scheme", "manifest_failure"
            )
        scope = parameters.get("scope") or f"repository:{self._image.repository}:pull"
        query = urlencode({**({"service": parameters["service"]} if "service" in parameters else {}), "scope": scope})
        url = f"{parameters['realm']}{'&' if '?' in parameters['realm'] else '?'}{query}"
        headers = {"Authorization": self._login.basic_authorization} if self._login is not None else {}
        response = self._fetcher.get(url, self._deadline, headers, self._insecure)
        return f"Bearer {self._decode_token(response)}"

    def _decode_token(self, response: FetchedResponse) -> str:
        try:
            decoded = msgspec.json.decode(response.body, type=_Token) if response.status == 200 else _Token()
        except msgspec.MsgspecError:
            decoded = _Token()
        token = decoded.token or decoded.access_token
        if not token or not token.isascii() or not token.isprintable():
            raise FetchError(
                f"cannot obtain a token for the registry of {self._image.name}: status {response.status}",
                "manifest_failure",
            )
        return token


def _select_platform(descriptors: list[Descriptor]) -> Descriptor:
    """Return the manifest to use from an index.

    A module is the same for all platforms, but an index may list only some of them.
    """
    for platform in (("wasip1", "wasm"), ("wasi", "wasm"), ("linux", "amd64")):
        for descriptor in descriptors:
            if (
                descriptor.platform is not None
                and (descriptor.platform.os, descriptor.platform.architecture) == platform
            ):
                return descriptor
    return descriptors[0]
