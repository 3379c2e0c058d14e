"""Completion of proxies, their resources and namespaces, from the running control plane.

If the control plane does not respond at once, nothing is completed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.connection import connect

_SPECIAL = re.compile(r"[^\w@%+=:,./~-]")
SECONDS = 0.5
"""Maximum number of seconds to wait for the control plane."""


class QuotingBashComplete(BashComplete):
    """Completion for bash that quotes characters with a meaning in the shell, such as | in the names of clusters."""

    def format_completion(self, item: CompletionItem) -> str:
        """Return an item for the completion script, which removes one of two backslashes."""
        value = _SPECIAL.sub(r"\\\\\g<0>", item.value)
        return super().format_completion(CompletionItem(value, item.type))


def complete_proxies(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the IDs of the connected proxies that begin with a text, and are in the namespace of the option -n."""
    namespace = ctx.params.get("namespace") or ""
    query = {"namespace": namespace} if namespace else {}
    return _matching((proxy["proxy"] for proxy in _read(ctx, "syncz", **query) or ()), incomplete)


def complete_namespaces(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the namespaces of services, problems and proxies that begin with a text."""
    services = (service.get("Attributes", {}).get("Namespace", "") for service in _read(ctx, "registryz") or ())
    proxies = (proxy["proxy"].rpartition(".")[2] for proxy in _read(ctx, "syncz") or ())
    return _matching(filter(None, (*services, *proxies)), incomplete)


def complete_resources(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the proxy's resources that begin with a text."""
    # While the value of an option is completed, click has not assigned the arguments before it.
    proxy = ctx.params.get("proxy") or next((word for word in ctx.args if not word.startswith("-")), "")
    namespace = ctx.params.get("namespace") or ""
    query = {"proxyID": proxy, **({"namespace": namespace} if namespace else {})}
    clients = (_read(ctx, "adsz", **query) or {}).get("clients", ()) if proxy else ()
    return _matching((name for client in clients for names in client["watches"].values() for name in names), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _read(ctx: click.Context, page: str, **query: str) -> Any:
    with contextlib.suppress(CommandError, click.UsageError):
        return connect(ctx, seconds=SECONDS).get(page, **query)
    return None
