"""Asks registries of images: https://github.com/opencontainers/distribution-spec/blob/main/spec.md"""

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

_DEFAULT_REGISTRY, _DOCKER_HUB = "index.docker.io", ("docker.io", "index.docker.io")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG, _DIGEST = re.compile(r"\w[\w.-]{0,127}", re.ASCII), re.compile("sha256:[0-9a-f]{64}")


class ImageReference(NamedTuple):
    """An image. `digest` is "sha256:…", "" where a tag alone names it."""

    registry: str
    repository: str
    tag: str = "latest"
    digest: str = ""

    @property
    def name(self) -> str:
        """Returns the reference without tag and digest."""
        return f"{self.registry}/{self.repository}"

    @property
    def wanted(self) -> str:
        """Returns what the registry is asked for."""
        return self.digest or self.tag


def parse_image(text: str) -> ImageReference:
    """Returns the image of `registry/repository:tag@digest`; like elsewhere a first part that is no host is of Docker's own registry. ValueError
    where it is none."""
    rest, _, digest = text.partition("@")
    first, slash, path = rest.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, path = _DEFAULT_REGISTRY, rest
    registry = _DEFAULT_REGISTRY if first in _DOCKER_HUB else first
    repository, colon, tag = path.partition(":")
    if registry == _DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    if (
        not _REPOSITORY.fullmatch(repository)
        or (colon and not _TAG.fullmatch(tag))
        or ("@" in text and not _DIGEST.fullmatch(digest))
    ):
        raise ValueError(f"{text!r} names no image")
    return ImageReference(registry, repository, tag or "latest", digest)


INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_ENDPOINTS = {"index.docker.io": "registry-1.docker.io"}
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_MANIFEST_BYTES = 4 * 1024 * 1024


class Platform(msgspec.Struct):
    os: str = ""
    architecture: str = ""


class Descriptor(msgspec.Struct, rename="camel"):
    """What a manifest refers to."""

    digest: str
    size: int = 0
    media_type: str = ""
    platform: Platform | None = None


class Manifest(msgspec.Struct, rename="camel"):
    """An image (`layers`), or a list of images (`manifests`). `digest` is filled in by who has read it."""

    layers: list[Descriptor] = []
    manifests: list[Descriptor] = []
    digest: str = ""


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class RegistryClient:
    """One image of a registry, within a time. `insecure`: its certificate is not verified, and it may speak plain HTTP."""

    def __init__(
        self, fetcher: HttpFetcher, image: ImageReference, login: Login | None, deadline: float, insecure: bool = False
    ) -> None:
        self._fetcher, self._image, self._login, self._deadline, self._insecure = (
            fetcher,
            image,
            login,
            deadline,
            insecure,
        )
        self._scheme, self._proof = "https", ""

    def manifest(self) -> tuple[Manifest, frozenset[str]]:
        """Returns the manifest of the image, and the digests that may stand for it: its own, and that of the list that it is from. FetchError where
        it cannot be had, or is not what its digest says."""
        found = self._manifest(self._image.wanted)
        digests = {found.digest}
        if found.manifests:
            found = self._manifest(_choose(found.manifests).digest)
            digests.add(found.digest)
        return found, frozenset(digests)

    def _manifest(self, wanted: str) -> Manifest:
        answer = self._get(f"manifests/{wanted}", {"Accept": ", ".join((*MANIFESTS, *INDEXES))})
        if len(answer.body) > _MANIFEST_BYTES:
            raise FetchError(
                f"the manifest of {self._image.name} has more than {_MANIFEST_BYTES} bytes", "manifest_failure"
            )
        digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        if ":" in wanted and wanted != digest:
            raise FetchError(
                f"the manifest of {self._image.name} is not the one that its digest names", "checksum_mismatch"
            )
        try:
            found = msgspec.json.decode(answer.body, type=Manifest)
        except msgspec.MsgspecError as error:
            raise FetchError(f"the manifest of {self._image.name} cannot be read", "manifest_failure") from error
        found.digest = digest
        return found

    def blob(self, described: Descriptor) -> bytes:
        """Returns a layer. FetchError where it cannot be had, or is not what its digest says."""
        body = self._get(f"blobs/{described.digest}", {}).body
        if described.digest != f"sha256:{hashlib.sha256(body).hexdigest()}":
            raise FetchError(f"a layer of {self._image.name} is not the one that its digest names", "checksum_mismatch")
        return body

    def _get(self, path: str, headers: Mapping[str, str]) -> FetchedResponse:
        answer = self._ask(path, headers)
        if answer.status == 401 and not self._proof:
            self._proof = self._prove(answer.headers.get("www-authenticate", ""))
            answer = self._ask(path, headers)
        if answer.status != 200:
            what = f"the registry of {self._image.name} answers {answer.status}"
            raise FetchError(
                what, "manifest_failure" if path.startswith("manifests") else "download_failure", answer.status >= 500
            )
        return answer

    def _ask(self, path: str, headers: Mapping[str, str]) -> FetchedResponse:
        sent = {**headers, **({"Authorization": self._proof} if self._proof else {})}
        host = _ENDPOINTS.get(self._image.registry, self._image.registry)
        try:
            return self._fetcher.get(
                f"{self._scheme}://{host}/v2/{self._image.repository}/{path}", self._deadline, sent, self._insecure
            )
        except FetchError as error:
            if not (self._insecure and self._scheme == "https" and isinstance(error.__cause__, ssl.SSLError)):
                raise
        self._scheme = "http"
        return self._ask(path, headers)

    def _prove(self, challenge: str) -> str:
        """Returns the header that a registry asks for: the login itself, or a token from the server that the challenge names."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            if self._login is None:
                raise FetchError(
                    f"the registry of {self._image.name} asks for a login, and there is none", "manifest_failure"
                )
            return self._login.basic
        said = dict(_PARAMETER.findall(rest))
        if kind.lower() != "bearer" or urlsplit(said.get("realm", "")).scheme not in (
            "https",
            *(("http",) if self._scheme == "http" else ()),
        ):
            raise FetchError(
                f"the registry of {self._image.name} asks for a proof that is not known", "manifest_failure"
            )
        scope = said.get("scope") or f"repository:{self._image.repository}:pull"
        query = urlencode({**({"service": said["service"]} if "service" in said else {}), "scope": scope})
        url = f"{said['realm']}{'&' if '?' in said['realm'] else '?'}{query}"
        headers = {"Authorization": self._login.basic} if self._login is not None else {}
        answer = self._fetcher.get(url, self._deadline, headers, self._insecure)
        return f"Bearer {self._token(answer)}"

    def _token(self, answer: FetchedResponse) -> str:
        try:
            found = msgspec.json.decode(answer.body, type=_Token) if answer.status == 200 else _Token()
        except msgspec.MsgspecError:
            found = _Token()
        if not (token := found.token or found.access_token) or not token.isascii() or not token.isprintable():
            raise FetchError(
                f"there is no token for the registry of {self._image.name}: status {answer.status}", "manifest_failure"
            )
        return token


def _choose(listed: list[Descriptor]) -> Descriptor:
    """Returns the image of a list that has the module: it is the same for all platforms, but some lists name only one of each."""
    for wanted in (("wasip1", "wasm"), ("wasi", "wasm"), ("linux", "amd64")):
        for one in listed:
            if one.platform is not None and (one.platform.os, one.platform.architecture) == wanted:
                return one
    return listed[0]
