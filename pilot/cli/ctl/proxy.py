"""The target proxy of a command. Its source is the control plane, a running Envoy, or a config_dump file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import with_client
from pilot.cli.ctl.envoy import EnvoyDump, fetch_dump, read_dump

Function = TypeVar("Function", bound=Callable[..., Any])


class ProxyTarget(NamedTuple):
    """The target proxy of a command.

    `name` is the name that the user specified for the proxy, or "" if only `envoy` identifies it. `envoy` is None if
    only the control plane is queried.
    """

    client: PageClient
    name: str
    envoy: EnvoyDump | None

    def heading(self) -> str:
        """Return the line that names the proxy.

        Raise CommandError if no proxy or several proxies have the name, or if the Envoy is another proxy's.
        """
        if self.envoy is None:
            return describe_proxy(find_status(self.client, self.name))
        proxy_id = self.envoy.proxy_id()
        if self.name and self.name not in proxy_id:
            raise wrong_envoy(proxy_id, self.name)
        return f"Proxy {proxy_id}" if proxy_id else "An Envoy that does not report its node ID"

    def resources(self, short_type: str) -> list[dict[str, Any]]:
        """Return the resources of a type from Envoy if it is available, or else from the control plane."""
        if self.envoy is not None:
            return self.envoy.resources(short_type)
        configs: list[dict[str, Any]] = self.client.get("config_dump", proxyID=self.name, types=short_type).get(
            "configs", []
        )
        return configs


def find_status(client: PageClient, name: str) -> dict[str, Any]:
    """Return the sync status of the proxy that a name selects.

    Raise CommandError if no proxy or several proxies have the name.
    """
    status: dict[str, Any] = client.get("syncz", proxyID=name)[0]
    return status


def describe_proxy(status: dict[str, Any]) -> str:
    """Return the line that names a proxy, from its sync status."""
    cluster = f" in cluster {status['cluster_id']}" if status.get("cluster_id") else ""
    return f"Proxy {status['proxy']}{cluster}"


def wrong_envoy(proxy_id: str, name: str) -> CommandError:
    """Return the error for an Envoy that is not the specified proxy's."""
    if not proxy_id:
        return CommandError(f"this Envoy does not report its node ID, so it cannot be compared with {name}")
    return CommandError(f"this Envoy belongs to the proxy {proxy_id}, not to {name}")


def with_envoy(function: Function) -> Function:
    """Add the options --envoy and --file to a command, and pass it an EnvoyDump or None as `envoy`."""

    @click.option(
        "--envoy",
        "admin",
        metavar="URL",
        help="read the configuration from this Envoy admin address, such as http://127.0.0.1:15000",
    )
    @click.option(
        "--file",
        "path",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="read the configuration from a config_dump file; - for standard input",
    )
    @functools.wraps(function)
    def command(admin: str | None, path: str | None, **more: Any) -> Any:
        return function(envoy=_dump(admin, path), **more)

    return command  # type: ignore[return-value]


def with_proxy(function: Function) -> Function:
    """Add PROXY, --envoy, --file and --address to a command, and pass it a ProxyTarget as the first argument."""

    @click.argument("proxy", required=False)
    @with_envoy
    @with_client
    @functools.wraps(function)
    def command(client: PageClient, proxy: str | None, envoy: EnvoyDump | None, **more: Any) -> Any:
        if envoy is None and not proxy:
            raise click.UsageError("specify PROXY, --envoy URL or --file FILE")
        return function(ProxyTarget(client, proxy or "", envoy), **more)

    return command  # type: ignore[return-value]


def _dump(admin: str | None, path: str | None) -> EnvoyDump | None:
    if admin and path:
        raise click.UsageError("--envoy and --file are mutually exclusive")
    if admin:
        return fetch_dump(admin)
    return _read(path) if path else None


def _read(path: str) -> EnvoyDump:
    try:
        with click.open_file(path, encoding="utf-8") as file:
            return read_dump(file.read(), path)
    except (OSError, UnicodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error
