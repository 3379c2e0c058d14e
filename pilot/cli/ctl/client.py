"""HTTP client for the debug pages of a control plane."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import click

from pilot.cli.ctl.connected_proxies import describe_missing_proxy, list_proxies, proxy_names
from pilot.cli.http_request import AddressError, HttpResponse, UnreachableError, parse_address, send
from pilot.lib.build_info import VERSION_HEADER
from pilot.lib.text import join_lines

DEFAULT_PORT = 15014
DEFAULT_ADDRESS = f"http://127.0.0.1:{DEFAULT_PORT}"
_PAGE_HINT = "pilotctl internal-debug lists the pages, unless ENABLE_DEBUG_ON_HTTP=false disables them"
ADDRESS_HINT = f"--address sets its monitoring address, port {DEFAULT_PORT} by default"
_TIMEOUT = 60.0  # seconds; rendering many thousand clusters as JSON takes a while


class CommandError(click.ClickException):
    """A command failed. The message is one sentence for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(join_lines(message))


class UnknownProxyError(CommandError):
    """No connected proxy matches the specified name."""


class AmbiguousProxyError(CommandError):
    """Several proxies match the specified name. The message lists them."""

    exit_code = 2


class OtherControlPlaneError(CommandError):
    """A Pod in the cluster answers as a control plane of another kind, such as another revision's istiod."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is another control plane (not pyistiod); --revision NAME selects the replicas")


def _is_own(response: HttpResponse) -> bool:
    """Return whether a response is that of a pyistiod before 1.0.0rc2, which names only its HTTP library."""
    return "aiohttp" in response.headers.get("server", "")


class PageClient:
    """Client for the debug pages of one control plane. `address` has any form that `parse_address` accepts.

    A request that takes more than `seconds` fails. `name` is that of the replica for users, by default the address. If
    it is that of a Pod, a response of another kind of server raises OtherControlPlaneError. `revision` is that in the
    labels of the Pod, or "".
    `reason` returns why the last request failed, if the address knows, as a port-forward does. `hint` is the end of the
    message for an unreachable address.
    """

    def __init__(
        self,
        address: str,
        seconds: float = _TIMEOUT,
        name: str = "",
        reason: Callable[[], str] = lambda: "",
        hint: str = ADDRESS_HINT,
        revision: str = "",
    ) -> None:
        self.revision = revision
        self._seconds, self._reason, self._hint = seconds, reason, hint
        if "," in address:
            message = (
                f"invalid address {address!r}: repeat --address, or separate addresses in PILOTCTL_ADDRESS by spaces"
            )
            raise click.BadParameter(message, param_hint="'--address'")
        try:
            self.address = parse_address(address, DEFAULT_PORT)
        except AddressError as error:
            raise click.BadParameter(str(error), param_hint="'--address'") from error
        origin, debug, _ = f"{self.address}/".partition("/debug/")
        if debug:
            message = f"invalid address {address!r}: it must not contain the path of a page; use {origin}"
            raise click.BadParameter(message, param_hint="'--address'")
        self.name = name or self.address

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
            response = send(url, seconds=self._seconds)
        except UnreachableError as error:
            if self.name != self.address:
                raise CommandError(f"cannot reach {self.name}: {self._reason() or error}") from error
            raise CommandError(
                f"cannot reach {self.address}: {error}. Is pilot-discovery running there? {self._hint}"
            ) from error
        if VERSION_HEADER.lower() not in response.headers:
            if self.name != self.address and not _is_own(response):
                raise OtherControlPlaneError(self.name)
            is_envoy = response.headers.get("server") == "envoy"
            raise CommandError(
                f"{self.address} is not the monitoring port of pilot-discovery: its response to /{path} "
                f"(status {response.status}) lacks the header {VERSION_HEADER} of 1.0.0rc2 and later; --address takes "
                f"the address of --monitoringAddr, port {DEFAULT_PORT} by default"
                + ("; this is an Envoy: `pilotctl proxy-config --envoy URL` reads it" if is_envoy else "")
            )
        if response.status != 200:
            raise self._refused(path, query, response)
        return response.text

    def _refused(self, path: str, query: dict[str, str], response: HttpResponse) -> CommandError:
        text = response.text.strip()
        if response.status == 404 and text.startswith("Proxy not connected"):
            if "/" in query["proxyID"]:
                return UnknownProxyError(
                    f"{query['proxyID']!r} is not the name of a proxy: use POD.NAMESPACE or part of it, or "
                    f"svc/NAME.NAMESPACE{list_proxies(proxy_names(self.get('connections')))}"
                )
            if about := text.partition("\n")[2]:
                return UnknownProxyError(f"{about}; looked at {self.address}")
            namespace = query.get("namespace", "")
            place = f" in namespace {namespace}" if namespace else ""
            return UnknownProxyError(
                f"no connected proxy{place} matches {query['proxyID']!r} at {self.address}"
                + describe_missing_proxy(query["proxyID"], namespace, self.get("connections"))
            )
        if response.status == 409:
            return AmbiguousProxyError(text)
        if response.status == 401:
            return CommandError(
                f"{self.address} accepts local connections only: "
                "use its loopback address, for example through a port-forward"
            )
        if response.status == 404 and text == "404 page not found":
            return CommandError(f"{self.address} has no page /{path}; {_PAGE_HINT}")
        return CommandError(text or f"{self.address}/{path} returned {response.status} {response.reason}")
