"""pilotctl: inspect a running control plane and manage installations."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import add_completion_class

from pilot.cli.ctl.command import LazyGroup, Section
from pilot.cli.ctl.completions import QuotingBashComplete
from pilot.cli.ctl.connection import with_connection
from pilot.lib.build_info import build_info

_COMMANDS = "pilot.cli.ctl.commands"
add_completion_class(QuotingBashComplete, "bash")
SECTIONS = (
    Section(
        "Proxies",
        {
            "proxy-status": f"{_COMMANDS}.proxy_status:proxy_status",
            "proxy-config": f"{_COMMANDS}.proxy_config:proxy_config",
            "ztunnel-config": f"{_COMMANDS}.ztunnel_config:ztunnel_config",
            "describe": f"{_COMMANDS}.describe:describe",
            "explain": f"{_COMMANDS}.explain:explain",
            "authz": f"{_COMMANDS}.authz:authz",
            "waypoint": f"{_COMMANDS}.waypoint:waypoint",
            "metrics": f"{_COMMANDS}.metrics:metrics",
        },
    ),
    Section(
        "Configuration",
        {
            "problems": f"{_COMMANDS}.problems:problems",
            "certificates": f"{_COMMANDS}.certificates:certificates",
            "status": f"{_COMMANDS}.status:status",
            "wait": f"{_COMMANDS}.wait:wait",
            "rollout": f"{_COMMANDS}.rollout:rollout",
            "history": f"{_COMMANDS}.rollout:history",
            "analyze": f"{_COMMANDS}.analyze:analyze",
            "validate": f"{_COMMANDS}.validate:validate",
            "kube-inject": f"{_COMMANDS}.kube_inject:kube_inject",
            "check-inject": f"{_COMMANDS}.check_inject:check_inject",
        },
    ),
    Section(
        "Installation",
        {
            "install": f"{_COMMANDS}.install:install",
            "upgrade": f"{_COMMANDS}.install:upgrade",
            "uninstall": f"{_COMMANDS}.uninstall:uninstall",
            "verify-install": f"{_COMMANDS}.verify_install:verify_install",
            "tag": f"{_COMMANDS}.tag:tag",
            "shadow": f"{_COMMANDS}.shadow:shadow",
            "operator": f"{_COMMANDS}.operator:operator",
            "manifest": f"{_COMMANDS}.manifest:manifest",
            "profile": f"{_COMMANDS}.profile:profile",
            "translate": f"{_COMMANDS}.translate:translate",
            "precheck": f"{_COMMANDS}.precheck:precheck",
            "workload": f"{_COMMANDS}.workload:workload",
            "create-remote-secret": f"{_COMMANDS}.create_remote_secret:create_remote_secret",
        },
    ),
    Section(
        "Control plane",
        {
            "version": f"{_COMMANDS}.version:version",
            "admin": f"{_COMMANDS}.admin:admin",
            "internal-debug": f"{_COMMANDS}.internal_debug:internal_debug",
            "remote-clusters": f"{_COMMANDS}.remote_clusters:remote_clusters",
            "dashboard": f"{_COMMANDS}.dashboard:dashboard",
            "bug-report": f"{_COMMANDS}.bug_report:bug_report",
        },
    ),
    Section(
        "This program",
        {
            "completion": f"{_COMMANDS}.completion:completion",
        },
    ),
)


_NO_INJECTOR = "use pilotctl check-inject and pilotctl tag list"
_ADDRESS = "pilotctl reads the monitoring port: --address HOST:15014"
_NO_TLS = "pilotctl uses no TLS: it reads the monitoring port, which --address HOST:15014 names if there is no cluster"
_PODS = "pilotctl finds the replicas in the cluster: -i NAMESPACE and --revision NAME select them"
_NO_LOG = "pilotctl writes no log; pilotctl admin log --level SCOPE:LEVEL sets the levels of the control plane"
_DIRECTORIES = "directories are always read recursively"
HINTS = {
    "experimental": "commands of istioctl experimental are top-level commands here: pilotctl --help lists them",
    "x": "commands of istioctl experimental are top-level commands here: pilotctl --help lists them",
    "revision": "use pilotctl tag",
    "help": "use pilotctl --help or pilotctl COMMAND --help",
    "get": "kubectl get shows the objects of a cluster, and pilotctl internal-debug configz those in force",
    "injector": _NO_INJECTOR,
    "--recursive": _DIRECTORIES,
    "-R": _DIRECTORIES,
    "--xds-address": _ADDRESS,
    "--xds-label": _PODS,
    "--xds-port": f"{_PODS}, and their port is known",
    "--xds-via-agents": _ADDRESS,
    "--authority": _NO_TLS,
    "--cert-dir": _NO_TLS,
    "--insecure": _NO_TLS,
    "--plaintext": _NO_TLS,
    "--timeout": "pilotctl --kubeclient-timeout DURATION COMMAND sets the timeout of requests to API servers",
    "--kubeclient-timeout": "it precedes the command: pilotctl --kubeclient-timeout DURATION COMMAND",
    "--vklog": _NO_LOG,
    "--log_output_level": _NO_LOG,
    "-r": "use --revision NAME",
    "--profile": "use --set profile=NAME",
    "history ARGUMENT": "pilotctl rollout status KIND/NAME -n NAMESPACE shows the delivery of one object",
}
"""Hints for commands and options of istioctl and kubectl."""


INTERRUPTED = 130
"""Exit status after Ctrl-C, as of a process that SIGINT ends."""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    aliases={"ps": "proxy-status", "pc": "proxy-config", "zc": "ztunnel-config", "d": "dashboard", "dash": "dashboard"},
    hints=HINTS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "PILOTCTL",
        "max_content_width": 120,
    },
)
@with_connection
@click.option(
    "--kubeclient-timeout",
    metavar="DURATION",
    help="timeout of connections and responses of API servers, such as 1m (default: 10s and 30s)",
)
@click.version_option(build_info().version, prog_name="pilotctl", message="%(prog)s %(version)s")
def pilotctl(kubeclient_timeout: str | None) -> None:
    """Inspect a running control plane, check configuration and manage installations.

    In an incident, `problems` lists what is wrong, and `history` what has changed. `describe svc/NAME.NAMESPACE` shows
    why requests to a service fail, who may call it, and what hides it. `rollout status KIND/NAMESPACE/NAME` shows which
    proxies have a change.

    Options can also be set by environment variables: PILOTCTL_ADDRESS for --address, PILOTCTL_PROBLEMS_NAMESPACE for
    problems --namespace.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0, 1 after an error, 2 after a usage error, or 130 after Ctrl-C."""
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- until the process ends
    try:
        status = pilotctl.main(args=None if argv is None else list(argv), prog_name="pilotctl", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except SystemExit as end:
        status = end.code
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
