"""Reads what names a Wasm module: an image in a registry, or a file of a server of HTTP."""

from __future__ import annotations

import re
from typing import NamedTuple

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
