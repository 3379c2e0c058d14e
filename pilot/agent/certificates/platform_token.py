"""The identity token of a virtual machine of Google Compute Engine, as a source of the token file.

The agent fetches the token from the metadata server of the machine, and writes it to the token file. The audience is
the trust domain. https://cloud.google.com/compute/docs/instances/verifying-instance-identity
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import pathlib
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pilot.agent.agent_settings import AgentSettings
from pilot.lib.logging.log import scope

GOOGLE = "GoogleComputeEngine"
FILE = "JWT"
CHECK_SECONDS = 300.0
"""Interval between checks of the token, and between attempts to fetch it."""
GRACE_SECONDS = 1500.0
"""Remaining lifetime at which a token is replaced."""
_TIMEOUT = 10.0  # seconds
_LARGEST = 64 << 10
_PATH = "/computeMetadata/v1/instance/service-accounts/default/identity"
_FLAVOR = ("Metadata-Flavor", "Google")
_log = scope("gcecred")


class MetadataError(Exception):
    """The metadata server did not return a token."""


class PlatformToken(NamedTuple):
    """The token of the machine. `host` is the metadata server, and `path` the token file."""

    host: str
    audience: str
    path: str

    async def keep_fresh(self, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        """Replace the token before it expires, until cancelled."""
        while True:
            await sleep(CHECK_SECONDS)
            if self._expiry() - now() < GRACE_SECONDS:
                await self.refresh()

    async def refresh(self) -> None:
        """Write a new token to the file. A failure is logged, and the file stays as it is."""
        try:
            token = await asyncio.to_thread(self._fetch)
            await asyncio.to_thread(self._write, token)
        except MetadataError as error:
            _log.error("cannot fetch the token of this machine from %s: %s", self.host, error)
        except OSError as error:
            _log.error("cannot write the token of this machine to %s: %s", self.path, error.strerror or error)

    def _fetch(self) -> str:
        query = urllib.parse.urlencode({"audience": self.audience, "format": "full"})
        connection = http.client.HTTPConnection(self.host, timeout=_TIMEOUT)
        try:
            connection.request("GET", f"{_PATH}?{query}", headers=dict((_FLAVOR,)))
            response = connection.getresponse()
            body = response.read(_LARGEST)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MetadataError(str(error)) from error
        finally:
            connection.close()
        name, value = _FLAVOR
        if response.status != 200 or response.getheader(name) != value:
            raise MetadataError(f"the response is not from a metadata server: status {response.status}")
        token = body.decode("ascii", "replace").strip()
        try:
            _expiry_of(token)
        except ValueError as error:
            raise MetadataError("the response is not a token") from error
        return token

    def _write(self, token: str) -> None:
        """Replace the file in one step, because the token may be read at any time."""
        part = f"{self.path}.part"
        pathlib.Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "w", encoding="ascii") as file:
            file.write(token)
        os.replace(part, self.path)

    def _expiry(self) -> float:
        """Return the Unix time at which the token in the file expires, or 0 if there is none."""
        try:
            return _expiry_of(pathlib.Path(self.path).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0.0


def _expiry_of(token: str) -> float:
    """Return the Unix time at which a token expires. The token is not verified. Raises ValueError if it is malformed.

    The library for tokens is not used, because importing it takes memory in every agent.
    """
    _, payload, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    if not isinstance(expiry, int | float):
        raise ValueError("the token does not expire")
    return float(expiry)


def platform_token(settings: AgentSettings) -> PlatformToken | None:
    """Return the token of the machine, or None if the token file has another source.

    Raises ValueError, with a message for the user, if the source is unknown.
    """
    source = settings.control_plane.credential_fetcher
    if source in ("", FILE):
        return None
    if source != GOOGLE:
        raise ValueError(f"variable CREDENTIAL_FETCHER_TYPE: {source!r} is neither {FILE} nor {GOOGLE}")
    return PlatformToken(
        settings.control_plane.metadata_server, settings.pod.trust_domain, settings.control_plane.token_file
    )
