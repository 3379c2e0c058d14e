"""HTTP client for the debug pages of a control plane."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import click

from pilot.lib.text import one_line

DEFAULT_ADDRESS = "http://127.0.0.1:15014"
_TIMEOUT = 60.0  # seconds; rendering many thousand clusters as JSON takes a while


class CommandError(click.ClickException):
    """A command failed. The message is one sentence for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class UnknownProxyError(CommandError):
    """No connected proxy matches the specified name."""


class PageClient:
    """Client for the debug pages of one control plane. Its address is "http://host:port" or "host:port"."""

    def __init__(self, address: str) -> None:
        self.address = (address if "://" in address else f"http://{address}").rstrip("/")

    def get(self, page: str, **query: str) -> Any:
        """Return the parsed JSON of a page below /debug."""
        try:
            return json.loads(self.text(f"debug/{page}", **query))
        except ValueError as error:
            raise CommandError(f"{self.address}/debug/{page} did not return JSON: {error}") from error

    def text(self, path: str, **query: str) -> str:
        """Return the body of the response for a path.

        Raise CommandError if the control plane is unreachable or returns an error.
        """
        url = f"{self.address}/{path}" + (
            f"?{urllib.parse.urlencode(query, errors='surrogateescape')}" if query else ""
        )
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
                body: bytes = response.read()
                return body.decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise self._refused(path, query, error) from error
        except (urllib.error.URLError, ValueError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(
                f"cannot reach {self.address}: {reason}; is pilot-discovery running there? (--address sets the address)"
            ) from error

    def _refused(self, path: str, query: dict[str, str], error: urllib.error.HTTPError) -> CommandError:
        text = error.read().decode(errors="replace").strip()
        if error.code == 404 and text.startswith("Proxy not connected"):
            return UnknownProxyError(
                f"no connected proxy matches {query['proxyID']!r} at {self.address}{self._connected()}"
            )
        if error.code == 401:
            return CommandError(
                f"{self.address} accepts local connections only: "
                "use its loopback address, for example through a port-forward"
            )
        return CommandError(text or f"{self.address}/{path} returned {error.code} {error.reason}")

    def _connected(self) -> str:
        names = [client["connectionId"].rpartition("-")[0] for client in self.get("connections").get("clients", ())]
        if not names:
            return "; no proxies are connected"
        return f"; connected proxies: {', '.join(names[:5])}" + (
            f" and {len(names) - 5} more" if len(names) > 5 else ""
        )
