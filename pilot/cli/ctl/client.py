"""Questions to the debug pages of a control plane."""

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
_TIMEOUT = 60.0  # seconds; a configuration of many thousand clusters takes a while to become text


class CommandError(click.ClickException):
    """A command cannot do its work; the text says why, in one sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class UnknownProxyError(CommandError):
    """No connected proxy has that name."""


class PageClient:
    """The pages of one control plane. `address`: "http://host:port", the scheme may be missing."""

    def __init__(self, address: str) -> None:
        self.address = (address if "://" in address else f"http://{address}").rstrip("/")

    def get(self, page: str, **query: str) -> Any:
        """Returns the JSON of a page below /debug."""
        try:
            return json.loads(self.text(f"debug/{page}", **query))
        except ValueError as error:
            raise CommandError(f"{self.address}/debug/{page} answers no JSON: {error}") from error

    def text(self, path: str, **query: str) -> str:
        """Returns what a path answers. CommandError where it cannot be asked or refuses."""
        url = f"{self.address}/{path}" + (
            f"?{urllib.parse.urlencode(query, errors='surrogateescape')}" if query else ""
        )
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
                found: bytes = response.read()
                return found.decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise self._refused(path, query, error) from error
        except (urllib.error.URLError, ValueError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise CommandError(
                f"cannot ask {self.address}: {reason}; is pilot-discovery running there? (--address says where)"
            ) from error

    def _refused(self, path: str, query: dict[str, str], error: urllib.error.HTTPError) -> CommandError:
        text = error.read().decode(errors="replace").strip()
        if error.code == 404 and text.startswith("Proxy not connected"):
            return UnknownProxyError(
                f"no proxy whose name contains {query['proxyID']!r} is connected to {self.address}{self._connected()}"
            )
        if error.code == 401:
            return CommandError(
                f"{self.address} answers to its own machine only: use its loopback address, for example through a port-forward"
            )
        return CommandError(text or f"{self.address}/{path} answers {error.code} {error.reason}")

    def _connected(self) -> str:
        names = [client["connectionId"].rpartition("-")[0] for client in self.get("connections").get("clients", ())]
        if not names:
            return "; none is"
        return f"; connected are {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")
