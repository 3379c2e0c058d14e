"""Finds what a registry is to be told in a configuration of Docker's, which is what pull secrets are."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

_HUB = ("index.docker.io", "docker.io", "registry-1.docker.io")


class Login(NamedTuple):
    """A name and a password."""

    name: str
    password: str

    @property
    def basic(self) -> str:
        """Returns the header by which HTTP carries both."""
        return "Basic " + base64.b64encode(f"{self.name}:{self.password}".encode()).decode()


class _Entry(msgspec.Struct):
    username: str = ""
    password: str = ""
    auth: str = ""


class _Config(msgspec.Struct):
    auths: dict[str, _Entry] = {}


def find_login(secret: str, registry: str) -> Login | None:
    """Returns the login for a registry; None where the configuration has none for it. ValueError where it cannot be read."""
    try:
        config = msgspec.json.decode(secret, type=_Config)
    except msgspec.MsgspecError as error:
        raise ValueError("the pull secret is no configuration of Docker's") from error
    for place, entry in config.auths.items():
        if _same(place, registry):
            return _login(entry)
    return None


def _same(place: str, registry: str) -> bool:
    host = urlsplit(place if "://" in place else f"//{place}").netloc
    return host == registry or (host in _HUB and registry in _HUB)


def _login(entry: _Entry) -> Login | None:
    if not entry.auth:
        return Login(entry.username, entry.password) if entry.username else None
    try:
        name, colon, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("the pull secret has a login that is no base64 of text") from error
    return Login(name, password.rstrip("\0")) if colon else None
