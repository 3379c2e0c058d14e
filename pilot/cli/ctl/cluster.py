"""Commands that ask an API server: how it is found, and what is said where it refuses."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pilot.cli.ctl.client import CommandError
from pilot.kube.access import Credentials, InCluster, KubeconfigFile
from pilot.kube.errors import KubeError

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
MANAGER = "istio-operator"
_USUAL = "~/.kube/config"


class Cluster:
    """One API server, asked in the name of the installation."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def ask(self, work: Callable[[ObjectClient, ObjectClient], Awaitable[Result]], dry_run: bool = False) -> Result:
        """Returns what `work` does with the objects of the server; with `dry_run` it can change nothing. It is also given them as a dry run.
        CommandError where the server cannot be asked or refuses."""
        return asyncio.run(self._ask(work, dry_run))

    async def _ask(self, work: Callable[[ObjectClient, ObjectClient], Awaitable[Result]], dry_run: bool) -> Result:
        from pilot.kube.client import (
            ApiClient,
        )  # and aiohttp with it, for which commands that ask no server need not wait
        from pilot.kube.object_client import ObjectClient

        client = ApiClient(self._credentials)
        try:
            trial = ObjectClient(client, MANAGER, random.Random(), dry_run=True)
            return await work(trial if dry_run else ObjectClient(client, MANAGER, random.Random()), trial)
        except KubeError as error:
            raise CommandError(str(error)) from error
        except ImportError as error:
            raise CommandError(
                "kubeconfigs are read by a package that is not there: pip install 'pyistiod[kubernetes]'"
            ) from error
        finally:
            await client.close()


def of_cluster(function: Function) -> Function:
    """Gives a command the options that say which cluster, and a Cluster as its first argument."""

    @click.option(
        "-c",
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="kubeconfig; else $KUBECONFIG, ~/.kube/config, or the pod's own account",
    )
    @click.option("--context", "context_name", default="", metavar="NAME", help="context of the kubeconfig")
    @functools.wraps(function)
    def command(kubeconfig: str, context_name: str, **more: Any) -> Any:
        return function(Cluster(_credentials(kubeconfig, context_name)), **more)

    return command  # type: ignore[return-value]


def _credentials(kubeconfig: str, context: str) -> Credentials:
    path = kubeconfig or os.environ.get("KUBECONFIG") or _USUAL
    if (
        not kubeconfig
        and path == _USUAL
        and not os.path.exists(os.path.expanduser(path))
        and "KUBERNETES_SERVICE_HOST" in os.environ
    ):
        return InCluster()
    return KubeconfigFile(path, context)


def confirm(question: str, skip: bool) -> None:
    """Asks whether to go on, unless that is skipped. CommandError where the answer is no, or nobody answers."""
    if skip:
        return
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort as error:
        raise CommandError("nobody says yes: --skip-confirmation (-y) goes on without asking") from error
    raise CommandError("nothing was changed")
