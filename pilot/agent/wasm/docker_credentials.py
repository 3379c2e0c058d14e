"""Registry credentials in the format of Docker's config.json, which pull secrets use."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

_DOCKER_HUB = ("index.docker.io", "docker.io", "registry-1.docker.io")


class Login(NamedTuple):
    """A user name and a password."""

    username: str
    password: str

    @property
    def basic_authorization(self) -> str:
        """Return the value of the Authorization header."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


class _Entry(msgspec.Struct):
    username: str = ""
    password: str = ""
    auth: str = ""


class _Config(msgspec.Struct):
    auths: dict[str, _Entry] = {}


def find_login(secret: str, registry: str) -> Login | None:
    """Return the login for a registry, or None if `secret` has none. Raises ValueError if `secret` is malformed."""
    try:
        config = msgspec.json.decode(secret, type=_Config)
    except msgspec.MsgspecError as error:
        raise ValueError("the pull secret is not a Docker configuration") from error
    for location, entry in config.auths.items():
        if _is_same_registry(location, registry):
            return _decode_login(entry)
    return None


def _is_same_registry(location: str, registry: str) -> bool:
    host = urlsplit(location if "://" in location else f"//{location}").netloc
    return host == registry or (host in _DOCKER_HUB and registry in _DOCKER_HUB)


def _decode_login(entry: _Entry) -> Login | None:
    if not entry.auth:
        return Login(entry.username, entry.password) if entry.username else None
    try:
        username, colon, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("the auth field of the pull secret is not valid base64 text") from error
    return Login(username, password.rstrip("\0")) if colon else None
