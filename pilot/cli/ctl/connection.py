"""Options that select a control plane, and the connections to its replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pilot.cli.ctl.client import DEFAULT_ADDRESS, PageClient
from pilot.cli.ctl.control_plane import ControlPlane

Function = TypeVar("Function", bound=Callable[..., Any])
_CONNECTION = "pilotctl.connection"
"""Key of the options for connections in the `meta` of contexts, which a group shares with its commands."""


def with_addresses(function: Function) -> Function:
    """Add the option --address to a command or group. `connect` reads it."""
    return click.option(
        "--address",
        multiple=True,
        metavar="URL",
        expose_value=False,
        callback=_remember,
        help="monitoring address of a replica of the control plane; may be repeated",
    )(function)


def connect(ctx: click.Context, **options: Any) -> ControlPlane:
    """Return the control plane that the options of a command select. `options` are those of PageClient."""
    addresses = ctx.meta.get(_CONNECTION, {}).get("address") or (DEFAULT_ADDRESS,)
    return ControlPlane([PageClient(address, **options) for address in dict.fromkeys(addresses)])


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Keep the value of an option of a command for `connect`. It overrides the same option of the group."""
    if value:
        ctx.meta.setdefault(_CONNECTION, {})[parameter.name] = value
    return value
