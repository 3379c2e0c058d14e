"""Access to an API server for commands: kubeconfig options, and error messages of one sentence."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.durations import parse_seconds
from pilot.kube.api_access import Credentials, InCluster, KubeconfigFile
from pilot.kube.api_errors import KubeError

if TYPE_CHECKING:
    from pilot.kube.api_client import ApiClient
    from pilot.kube.object_client import ObjectClient

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
MANAGER = "istio-operator"
_OPTIONS = "pilotctl.options"
"""Key of options in the `meta` of contexts, which a group shares with its commands."""
_DEFAULT_PATH = "~/.kube/config"
_DEFAULT_NAMESPACE = "default"
NAMESPACE_DEFAULT = f"default: that of the kubeconfig context, or {_DEFAULT_NAMESPACE}"
"""The namespace of `default_namespace`, for the help of options."""


class Cluster:
    """An API server. Requests use the field manager of the installation.

    `timeout` is the timeout of connections and responses in seconds, or None for the defaults.
    """

    def __init__(self, credentials: Credentials, kubeconfig: str = "", timeout: float | None = None) -> None:
        self._credentials, self._kubeconfig, self._timeout = credentials, kubeconfig, timeout

    def in_context(self, name: str) -> Cluster:
        """Return the cluster of another context of the kubeconfig."""
        return Cluster(_credentials(self._kubeconfig, name), self._kubeconfig, self._timeout)

    def run(self, work: Callable[[ObjectClient, ObjectClient], Awaitable[Result]], dry_run: bool = False) -> Result:
        """Run `work` with two clients and return its result. The second client makes only dry-run requests.

        With `dry_run`, both clients make only dry-run requests. Raise CommandError if the API server is unreachable or
        returns an error.
        """
        return asyncio.run(self._run(work, dry_run))

    def server(self) -> str:
        """Return the address of the API server. Raise CommandError if the kubeconfig does not provide any."""
        try:
            return asyncio.run(self._credentials.load()).server
        except KubeError as error:
            raise CommandError(str(error)) from error

    def open_client(self) -> ApiClient:
        """Return a new client for the API server."""
        # It imports aiohttp, which is slow and not needed by commands that call no server.
        from pilot.kube.api_client import ApiClient, RequestTimeouts

        timeouts = RequestTimeouts()
        if self._timeout is not None:
            timeouts = timeouts._replace(connect=self._timeout, response=self._timeout)
        return ApiClient(self._credentials, timeouts=timeouts)

    async def _run(self, work: Callable[[ObjectClient, ObjectClient], Awaitable[Result]], dry_run: bool) -> Result:
        from pilot.kube.object_client import ObjectClient

        client = self.open_client()
        try:
            trial = ObjectClient(client, MANAGER, random.Random(), dry_run=True)
            return await work(trial if dry_run else ObjectClient(client, MANAGER, random.Random()), trial)
        except KubeError as error:
            raise CommandError(str(error)) from error
        except ImportError as error:
            raise CommandError(
                "reading kubeconfigs requires an optional dependency: pip install 'pyistiod[kubernetes]'"
            ) from error
        finally:
            await client.close()


def with_cluster(function: Function) -> Function:
    """Add the options that select a cluster to a command, and pass it a Cluster as the last positional argument."""

    @with_cluster_options
    @functools.wraps(function)
    def command(*arguments: Any, **more: Any) -> Any:
        return function(*arguments, selected_cluster(click.get_current_context()), **more)

    return command  # type: ignore[return-value]


def with_cluster_options(function: Function) -> Function:
    """Add the options that select a cluster to a command or group. `selected_cluster` reads them."""
    return click.option(
        "-c",
        "--kubeconfig",
        metavar="FILE",
        expose_value=False,
        callback=remember,
        help="kubeconfig (default: $KUBECONFIG, ~/.kube/config, or the pod's service account)",
    )(
        click.option("--context", metavar="NAME", expose_value=False, callback=remember, help="kubeconfig context")(
            function
        )
    )


def remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Keep the value of an option for `remembered`. The option of a command overrides that of its group."""
    if value:
        ctx.meta.setdefault(_OPTIONS, {})[parameter.name] = value
    return value


def remembered(ctx: click.Context, name: str) -> Any:
    """Return the value of an option, or None if neither the command nor its group has it."""
    return ctx.meta.get(_OPTIONS, {}).get(name)


def selected_cluster(ctx: click.Context) -> Cluster:
    """Return the cluster that the options of a command select."""
    kubeconfig, context = remembered(ctx, "kubeconfig") or "", remembered(ctx, "context") or ""
    timeout = _timeout(ctx.find_root().params.get("kubeclient_timeout"))
    return Cluster(_credentials(kubeconfig, context), kubeconfig, timeout)


def default_namespace() -> str:
    """Return the namespace of names without one in the current command: that of the kubeconfig context, or default.

    Raise CommandError if the kubeconfig is invalid.
    """
    ctx = click.get_current_context()
    try:
        credentials = _credentials(remembered(ctx, "kubeconfig") or "", remembered(ctx, "context") or "")
        return credentials.namespace() or _DEFAULT_NAMESPACE
    except KubeError as error:
        raise CommandError(str(error)) from error


def selects_cluster(ctx: click.Context) -> bool:
    """Return whether there is a kubeconfig or the service account of a Pod."""
    return bool(remembered(ctx, "kubeconfig") or has_kubeconfig() or "KUBERNETES_SERVICE_HOST" in os.environ)


def has_kubeconfig() -> bool:
    """Return whether there is a kubeconfig at the default place."""
    return bool(os.environ.get("KUBECONFIG")) or os.path.exists(os.path.expanduser(_DEFAULT_PATH))


def _timeout(text: str | None) -> float | None:
    """Return the seconds of a duration. Raise BadParameter if it is invalid or not positive."""
    if text is None:
        return None
    seconds = parse_seconds(text, "--kubeclient-timeout")
    if seconds <= 0:
        raise click.BadParameter(f"{text} is not a positive duration", param_hint="'--kubeclient-timeout'")
    return seconds


def _credentials(kubeconfig: str, context: str) -> InCluster | KubeconfigFile:
    path = kubeconfig or os.environ.get("KUBECONFIG") or _DEFAULT_PATH
    if (
        not kubeconfig
        and path == _DEFAULT_PATH
        and not os.path.exists(os.path.expanduser(path))
        and "KUBERNETES_SERVICE_HOST" in os.environ
    ):
        return InCluster()
    return KubeconfigFile(path, context)


def confirm(question: str, skip: bool) -> None:
    """Ask the user for confirmation. Do nothing if `skip` is True.

    Raise CommandError if the user declines or standard input has ended.
    """
    if skip:
        return
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort as error:
        raise CommandError("cannot prompt for confirmation: use --skip-confirmation (-y)") from error
    raise CommandError("aborted, nothing was changed")
