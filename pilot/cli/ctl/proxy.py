"""The target proxy of a command. Its source is the control plane, a running Envoy, or a config_dump file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import with_client
from pilot.cli.ctl.completions import complete_namespaces, complete_proxies
from pilot.cli.ctl.envoy import EnvoyDump, fetch_dump, read_dump
from pilot.cli.ctl.envoy_admin import open_admin
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import ANY_NAMESPACE

Function = TypeVar("Function", bound=Callable[..., Any])


class ProxyTarget(NamedTuple):
    """The target proxy of a command.

    `name` is the name that the user specified for the proxy, or "" if only `envoy` identifies it. If `namespace` is not
    "", the proxy is in it. `envoy` is None if only the control plane is queried.
    """

    client: Replicas
    name: str
    envoy: EnvoyDump | None
    namespace: str = ""

    def heading(self) -> str:
        """Return the line that names the proxy.

        Raise CommandError if no proxy or several proxies have the name, or if the Envoy is another proxy's.
        """
        if self.envoy is None:
            return describe_proxy(find_status(self.client, self.name, self.namespace))
        proxy_id = self.envoy.proxy_id()
        if self.name and self.name not in proxy_id:
            raise wrong_envoy(proxy_id, self.name)
        return f"Proxy {proxy_id}" if proxy_id else "An Envoy that does not report its node ID"

    def resources(self, short_type: str) -> list[dict[str, Any]]:
        """Return the resources of a type from Envoy if it is available, or else from the control plane."""
        if self.envoy is not None:
            return self.envoy.resources(short_type)
        query = {"proxyID": self.name, "types": short_type} | _in(self.namespace)
        configs: list[dict[str, Any]] = self.client.get("config_dump", **query).get("configs", [])
        return configs

    def with_envoy(self) -> ProxyTarget:
        """Return the target with the configuration of its running Envoy. Raise CommandError if it is unreachable."""
        if self.envoy is not None:
            return self
        with open_admin(find_client(self.client, self.name, self.namespace)) as admin:
            return self._replace(envoy=fetch_dump(admin))


def _in(namespace: str) -> dict[str, str]:
    return {"namespace": namespace} if namespace else {}


def find_client(client: Replicas, name: str, namespace: str = "") -> dict[str, Any]:
    """Return the connection and the node metadata of the proxy that a name selects.

    Raise CommandError if no proxy or several proxies have the name.
    """
    return _first(client.get("adsz", proxyID=name, **_in(namespace)).get("clients"), name, namespace)


def find_status(client: Replicas, name: str, namespace: str = "") -> dict[str, Any]:
    """Return the sync status of the proxy that a name selects.

    Raise CommandError if no proxy or several proxies have the name.
    """
    return _first(client.get("syncz", proxyID=name, **_in(namespace)), name, namespace)


def _first(proxies: list[dict[str, Any]] | None, name: str, namespace: str) -> dict[str, Any]:
    if not proxies:
        raise CommandError(f"no connected proxy matches {name!r}{f' in namespace {namespace}' if namespace else ''}")
    return proxies[0]


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
        "-f",
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
    """Add PROXY, -n, --envoy, --file and --address to a command, and pass it a ProxyTarget as the first argument."""

    @click.argument("proxy", required=False, shell_complete=complete_proxies)
    @click.option(
        "-n",
        "--namespace",
        type=ANY_NAMESPACE,
        default="",
        help="namespace of PROXY",
        shell_complete=complete_namespaces,
    )
    @with_envoy
    @with_client
    @functools.wraps(function)
    def command(client: Replicas, proxy: str | None, namespace: str, envoy: EnvoyDump | None, **more: Any) -> Any:
        if envoy is None and not proxy:
            raise click.UsageError("specify PROXY, --envoy URL or --file FILE")
        return function(ProxyTarget(client, proxy or "", envoy, namespace), **more)

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
        reason = getattr(error, "strerror", None) or "not a text in UTF-8"
        raise CommandError(f"cannot read {path}: {reason}") from error
