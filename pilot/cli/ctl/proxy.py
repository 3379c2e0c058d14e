"""The proxy that a command is about: as the control plane knows it, as its Envoy says, or as a file holds it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.ctl.command import asks
from pilot.cli.ctl.envoy import EnvoyDump, fetch_dump, read_dump

Function = TypeVar("Function", bound=Callable[..., Any])


class AskedProxy(NamedTuple):
    """`name` is what the user calls the proxy, "" where only `envoy` says which it is; `envoy` is what an Envoy said, None where none was asked."""

    client: PageClient
    name: str
    envoy: EnvoyDump | None

    def resources(self, short_type: str) -> list[dict[str, Any]]:
        """Returns the resources of a type: those that its Envoy has, or else those that the control plane has for it."""
        if self.envoy is not None:
            return self.envoy.resources(short_type)
        found: list[dict[str, Any]] = self.client.get("config_dump", proxyID=self.name, types=short_type).get(
            "configs", []
        )
        return found


def of_envoy(function: Function) -> Function:
    """Gives a command the options --envoy and --file, and what they name as its argument `envoy`: an EnvoyDump, or None."""

    @click.option(
        "--envoy",
        "admin",
        metavar="URL",
        help="admin port of its Envoy, such as http://127.0.0.1:15000, to see what that has",
    )
    @click.option(
        "--file",
        "path",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="its config_dump; - for standard input",
    )
    @functools.wraps(function)
    def command(admin: str | None, path: str | None, **more: Any) -> Any:
        return function(envoy=_dump(admin, path), **more)

    return command  # type: ignore[return-value]


def of_proxy(function: Function) -> Function:
    """Gives a command the argument PROXY, the options --envoy, --file and --address, and an AskedProxy as its first argument."""

    @click.argument("proxy", required=False)
    @of_envoy
    @asks
    @functools.wraps(function)
    def command(client: PageClient, proxy: str | None, envoy: EnvoyDump | None, **more: Any) -> Any:
        if envoy is None and not proxy:
            raise click.UsageError("say which proxy: PROXY, or --envoy URL or --file FILE for what an Envoy has itself")
        return function(AskedProxy(client, proxy or "", envoy), **more)

    return command  # type: ignore[return-value]


def _dump(admin: str | None, path: str | None) -> EnvoyDump | None:
    if admin and path:
        raise click.UsageError("--envoy and --file are the same thing from two places: say one of them")
    if admin:
        return fetch_dump(admin)
    return _read(path) if path else None


def _read(path: str) -> EnvoyDump:
    try:
        with click.open_file(path, encoding="utf-8") as file:
            return read_dump(file.read(), path)
    except (OSError, UnicodeError) as error:
        raise CommandError(f"cannot read {path}: {error}") from error
