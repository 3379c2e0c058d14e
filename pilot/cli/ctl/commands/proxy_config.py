"""pilotctl proxy-config: show the configuration of a proxy, either from the control plane or from its Envoy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import Any, TypeVar

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import AliasGroup, with_client, with_output
from pilot.cli.ctl.commands.rootca_compare import rootca_compare
from pilot.cli.ctl.completions import complete_namespaces, complete_proxies, complete_resources
from pilot.cli.ctl.envoy import set_levels
from pilot.cli.ctl.envoy_admin import open_admin
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.proxy import ProxyTarget, find_client, find_status, with_proxy
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.cli.ctl.tables import clusters, endpoints, extensions, listeners, routes, secrets
from pilot.cli.ctl.tables.filters import Filters, socket_of
from pilot.lib.suggestion import choices, did_you_mean
from pilot.lib.text import one_line
from pilot.lib.xds_types import BY_SHORT_NAME

# Resource type and table module of each subcommand
KINDS: dict[str, tuple[str, ModuleType]] = {
    "clusters": ("cds", clusters),
    "listeners": ("lds", listeners),
    "routes": ("rds", routes),
    "endpoints": ("eds", endpoints),
    "secrets": ("sds", secrets),
    "ecds": ("ecds", extensions),
}
SUMMARIES = {
    "clusters": "Show clusters, the upstreams of a proxy.",
    "listeners": "Show listeners: ports, filter chain matches and destinations.",
    "routes": "Show routes: request matches and destinations.",
    "endpoints": "Show endpoints, the addresses of clusters.",
    "secrets": "Show certificates and root certificates with their validity.",
    "ecds": "Show filters that are delivered separately over ECDS.",
}
NOTHING = "None."
ALIASES = {name.removesuffix("s"): name for name in KINDS} | {
    "a": "all",
    "b": "bootstrap",
    "c": "clusters",
    "ep": "endpoints",
    "l": "listeners",
    "o": "log",
    "r": "routes",
    "rc": "rootca-compare",
    "s": "secrets",
}
OPTIONS = {
    "fqdn": click.option("--fqdn", default="", help="only hosts that contain this text"),
    "port": click.option("--port", type=int, default=0, help="only this port"),
    "direction": click.option(
        "--direction",
        type=click.Choice(("inbound", "outbound")),
        help="only clusters of this direction",
    ),
    "subset": click.option("--subset", default="", help="only clusters whose subset contains this text"),
    "name": click.option(
        "--name", default="", help="only the resource with this name", shell_complete=complete_resources
    ),
    "cluster": click.option(
        "--cluster", default="", help="only endpoints of this cluster", shell_complete=complete_resources
    ),
    "address": click.option(
        "--address",
        "ip",
        default="",
        metavar="IP",
        help="only this IP address; `pilotctl --address URL` sets the address of the control plane",
    ),
    "status": click.option(
        "--status",
        type=click.Choice(endpoints.STATUSES, case_sensitive=False),
        help="only endpoints with this health status",
    ),
}
LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")
PROXY = "PROXY is POD.NAMESPACE or part of it."
ENVOY = (
    "Its Envoy is queried directly on this machine or, in a cluster, through kubectl port-forward. --envoy specifies "
    "another admin address."
)
Function = TypeVar("Function", bound=Callable[..., Any])
_NO_FILTER = Filters()._asdict()


_HINTS = {
    "routes --port": "--name selects a route configuration, which is named after its port, as in --name 80",
    "listeners --fqdn": "routes and clusters have host names: pilotctl proxy-config routes PROXY --fqdn HOST",
    "endpoints --fqdn": "--cluster selects a cluster: pilotctl proxy-config clusters PROXY --fqdn HOST lists the names",
}


@click.group(cls=AliasGroup, aliases=ALIASES, hints=_HINTS)
def proxy_config() -> None:
    """Show the configuration of a proxy: clusters, listeners, routes and more.

    The source is the control plane, or Envoy itself with --envoy or --file.
    """


def _add(name: str, short_type: str, table_module: ModuleType) -> None:
    @proxy_config.command(name, help=f"{SUMMARIES[name]}\n\n{PROXY}")
    @_with_filters(table_module.FILTERS)
    @with_output
    @with_proxy
    def command(target: ProxyTarget, filters: Filters) -> CommandResult:
        heading, notes = target.heading(), list[str]()
        if table_module is secrets:
            target, notes = _with_own_secrets(target)
        resources = target.resources(short_type)
        if notes and not resources:
            raise CommandError(
                f"the control plane has sent this proxy no secrets. {notes[0]}. To list the certificates that the "
                "control plane knows, use `pilotctl certificates`"
            )
        selection = table_module.select(resources, filters) if any(filters) else resources
        if not selection:
            _check_names(resources, name, filters)
        nothing = _no_match(resources, name, filters) if resources else _lacking(target, name, short_type)
        notes += _delivery(target, short_type)
        return CommandResult(selection, [heading, *notes, *_table(selection, table_module, nothing)])


def _check_names(resources: list[dict[str, Any]], kind: str, filters: Filters) -> None:
    """Raise CommandError if a filter is the name of a resource that does not exist."""
    for option, name in (("--name", filters.name), ("--cluster", filters.cluster)):
        names = [str(resource.get("clusterName") or resource.get("name")) for resource in resources]
        if name and name not in names:
            raise CommandError(f"{option} {name!r}: the proxy has no {kind} of this name{choices(name, names)}")


def _no_match(resources: list[dict[str, Any]], kind: str, filters: Filters) -> str:
    """Return a message that names the filters, and the values that occur for one that no resource has."""
    used = {name: value for name, value in filters._asdict().items() if value}
    shown = " ".join(f"--{name} {value}" for name, value in used.items())
    text = f"None of the {len(resources)} {kind} matches {shown}"
    for name, value in used.items():
        values = sorted(set().union(*(_values_of(resource, name) for resource in resources)), key=lambda v: (len(v), v))
        is_part = name in ("fqdn", "subset")
        if values and not any(str(value) in one if is_part else str(value) == one for one in values):
            return text + choices("" if name == "address" else str(value), values)
    return f"{text}."


def _values_of(resource: dict[str, Any], option: str) -> set[str]:
    """Return the values of a resource for a filter."""
    _, cluster_port, subset, host = (*str(resource.get("name", "")).split("|"), "", "", "")[:4]
    if option in ("address", "port"):
        ends = {socket_of(one) for one in _addresses(resource)}
        values = {host for host, _ in ends} if option == "address" else {cluster_port, *(str(port) for _, port in ends)}
    else:
        domains = {domain for one in resource.get("virtualHosts", ()) for domain in one.get("domains", ())}
        values = {"fqdn": {host, *domains}, "subset": {subset}}.get(option, set())
    return values - {"", "0"}


def _addresses(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the addresses of a listener, or of the endpoints of a cluster."""
    if "address" in resource:
        yield resource["address"]
    yield from (more["address"] for more in resource.get("additionalAddresses", ()))
    groups = resource.get("endpoints", ())
    yield from (one["endpoint"]["address"] for group in groups for one in group.get("lbEndpoints", ()))


def _lacking(target: ProxyTarget, kind: str, short_type: str) -> str:
    """Return the reason for which a proxy has no resources of a kind."""
    if target.envoy is not None:
        return f"This Envoy has no {kind}."
    watched = find_status(target.client, target.name, target.namespace).get("resources", {})
    if BY_SHORT_NAME[short_type] not in watched:
        return f"This proxy has not subscribed to {kind}, so the control plane has sent none."
    return f"This proxy has subscribed to {kind}, and the control plane has none for it."


def _delivery(target: ProxyTarget, short_type: str) -> list[str]:
    """Return a line if the proxy has rejected or not acknowledged the shown resources of the control plane."""
    if target.envoy is not None:
        return []
    resources = find_status(target.client, target.name, target.namespace).get("resources", {})
    resource = resources.get(BY_SHORT_NAME[short_type], {})
    sent = f"Sent at {resource.get('sentTime', 'an unknown time')}"
    if resource.get("lastError"):
        return [one_line(f"{sent}; REJECTED by the proxy, so not in force: {resource['lastError']}")]
    is_stale = bool(resource.get("sent")) and resource["sent"] != resource.get("acked")
    return [f"{sent}; not acknowledged, so it may not be in force"] if is_stale else []


def _with_filters(names: Collection[str]) -> Callable[[Function], Function]:
    """Add the options of filters to a command, and pass it Filters as `filters`.

    As in istioctl, a filter may be called --address. It replaces the option for the address of the control plane.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(**more: Any) -> Any:
            values = {name: more.pop("ip" if name == "address" else name) or _NO_FILTER[name] for name in names}
            if "address" in names:
                _check_ip(values["address"])
            return function(filters=Filters(**values), **more)

        parameters: list[click.Parameter] = function.__click_params__  # type: ignore[attr-defined]
        command.__click_params__ = [  # type: ignore[attr-defined]
            parameter for parameter in parameters if parameter.name not in names
        ]
        for name in reversed(tuple(names)):
            command = OPTIONS[name](command)
        return command  # type: ignore[return-value]

    return decorate


def _check_ip(text: str) -> None:
    """Raise UsageError if the value of the filter --address looks like the address of a control plane."""
    if "://" in text or text.count(":") == 1:
        raise click.UsageError(
            f"--address {text!r} is not an IP address; to set the address of the control plane, specify it before the "
            f"command: pilotctl --address {text} proxy-config …"
        )


def _with_own_secrets(target: ProxyTarget) -> tuple[ProxyTarget, list[str]]:
    """Return the target with the secrets of its running Envoy, which also has the workload's certificate.

    If Envoy is unreachable, return the target as it is and a note.
    """
    try:
        return target.with_envoy(), []
    except CommandError as error:
        return target, [f"Without the workload's certificate, which only Envoy and its agent have: {error.message}"]


for _name, (_short_type, _table_module) in KINDS.items():
    _add(_name, _short_type, _table_module)
proxy_config.add_command(rootca_compare)


@proxy_config.command("all", help=f"Show all resources of a proxy.\n\n{PROXY}")
@with_output
@with_proxy
def everything(target: ProxyTarget) -> CommandResult:
    heading = target.heading()
    resources_by_kind = {name: target.resources(short_type) for name, (short_type, _) in KINDS.items()}
    return CommandResult(resources_by_kind, [heading, *_tables(resources_by_kind)])


@proxy_config.command(help=f"Show the bootstrap configuration of a running Envoy.\n\n{PROXY} {ENVOY}")
@with_output
@with_proxy
def bootstrap(target: ProxyTarget) -> CommandResult:
    target = target.with_envoy()
    assert target.envoy is not None  # with_envoy() has read it
    config = target.envoy.bootstrap()
    return CommandResult(config, [target.heading(), *_bootstrap(config)])


@proxy_config.command(help=f"Show or change the log levels of a running Envoy.\n\n{PROXY} {ENVOY}")
@click.argument("proxy", required=False, shell_complete=complete_proxies)
@click.option(
    "-n", "--namespace", type=ANY_NAMESPACE, default="", help="namespace of PROXY", shell_complete=complete_namespaces
)
@click.option("--envoy", metavar="URL", help="admin address of the Envoy, such as http://127.0.0.1:15000")
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="[LOGGER:]LEVEL",
    help=f"level to set, for one logger or all: {', '.join(LEVELS)}",
)
@click.option("-r", "--reset", is_flag=True, help="set the level of all loggers to warning")
@with_client
def log(
    client: Replicas, proxy: str | None, namespace: str, envoy: str | None, levels: tuple[str, ...], reset: bool
) -> None:
    new_levels = dict(_level(part) for text in levels for part in text.split(","))
    if reset and new_levels:
        raise click.UsageError("--level and --reset are mutually exclusive")
    if not (proxy or envoy):
        raise click.UsageError("specify PROXY or --envoy URL")
    with nullcontext(envoy) if envoy else open_admin(find_client(client, proxy or "", namespace)) as admin:
        click.echo(set_levels(admin, {"": "warning"} if reset else new_levels).rstrip())


def _level(text: str) -> tuple[str, str]:
    if "=" in text:
        raise CommandError(f"--level {text!r}: use {text.replace('=', ':')!r}")
    logger, _, level = text.rpartition(":")
    if level not in LEVELS:
        hint = f"{did_you_mean(level, LEVELS)}; valid levels are {', '.join(LEVELS)}"
        raise CommandError(f"--level {text!r}: invalid level {level!r}{hint}")
    return logger, level


def _table(resources: list[dict[str, Any]], table_module: ModuleType, nothing: str) -> list[str | TextTable]:
    rows = table_module.rows(resources)
    return [TextTable(table_module.HEAD, rows) if rows else nothing]


def _tables(resources_by_kind: dict[str, list[dict[str, Any]]]) -> Iterator[str | TextTable]:
    for number, (name, resources) in enumerate(resources_by_kind.items()):
        yield from ["", name.upper()] if number else [name.upper()]
        yield from _table(resources, KINDS[name][1], NOTHING)


def _bootstrap(config: dict[str, Any]) -> Iterator[str | TextTable]:
    """Yield the node in a bootstrap as a table, and the names of the other fields."""
    node = config.get("node", {})
    facts = {"ID": node.get("id"), "CLUSTER": node.get("cluster"), **node.get("metadata", {})}
    yield TextTable(
        ("NODE", "VALUE"), [(name, value) for name, value in facts.items() if isinstance(value, str | int | float)]
    )
    yield ""
    yield f"Other fields: {', '.join(sorted(set(config) - {'node'}))}. Use -o yaml to show everything."
