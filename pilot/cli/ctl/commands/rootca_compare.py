"""pilotctl proxy-config rootca-compare: compare the root certificates that two proxies trust."""

from __future__ import annotations

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.command import with_client, with_output
from pilot.cli.ctl.completions import complete_namespaces, complete_proxies
from pilot.cli.ctl.output import CommandResult, TextTable
from pilot.cli.ctl.proxy import ProxyTarget
from pilot.cli.ctl.proxy_argument import resolve_proxy
from pilot.cli.ctl.replicas import Replicas
from pilot.cli.ctl.request_texts import ANY_NAMESPACE
from pilot.cli.ctl.tables.secrets import FORM, read_certificates

ROOTS = "ROOTCA"
"""Name of the secret with the roots of the mesh."""
_HEAD = ("ROOT", "NOT AFTER", "SHA-256", "TRUSTED BY")


@click.command("rootca-compare")
@click.argument("first", metavar="PROXY1", shell_complete=complete_proxies)
@click.argument("second", metavar="PROXY2", shell_complete=complete_proxies)
@click.option(
    "-n", "--namespace", type=ANY_NAMESPACE, default="", help="namespace of both", shell_complete=complete_namespaces
)
@with_output
@with_client
def rootca_compare(client: Replicas, first: str, second: str, namespace: str) -> CommandResult:
    """Compare the root certificates that two proxies trust.

    Mutual TLS between them requires a common root. Without one, the exit status is 1. The certificates are those of
    the running Envoys.
    """
    proxies = [resolve_proxy(client, text, namespace) for text in (first, second)]
    targets = [ProxyTarget(client, name, None, namespace).with_envoy() for name in proxies]
    names = [target.envoy.proxy_id() if target.envoy else "" for target in targets]
    roots = [_roots(target, name) for target, name in zip(targets, names, strict=True)]
    common = roots[0].keys() & roots[1].keys()
    if not common:
        trusts = [" and ".join(root.subject.rfc4514_string() for root in own.values()) for own in roots]
        raise CommandError(
            f"mutual TLS between the proxies fails: {names[0]} trusts {trusts[0]}, and {names[1]} trusts {trusts[1]}, "
            "which are other certificates"
        )
    entries = [
        {
            "root": root.subject.rfc4514_string(),
            "notAfter": root.not_valid_after_utc.strftime(FORM),
            "sha256": fingerprint,
            "trustedBy": [name for name, own in zip(names, roots, strict=True) if fingerprint in own],
        }
        for fingerprint, root in (roots[0] | roots[1]).items()
    ]
    rows = [(one["root"], one["notAfter"], one["sha256"][:16], ", ".join(one["trustedBy"])) for one in entries]
    return CommandResult(entries, [TextTable(_HEAD, rows), f"{names[0]} and {names[1]} trust a common root."])


def _roots(target: ProxyTarget, name: str) -> dict[str, x509.Certificate]:
    """Return the roots of a proxy by fingerprint. Raise CommandError if its Envoy has none."""
    secrets = [secret for secret in target.resources("sds") if secret.get("name") == ROOTS]
    roots = [root for secret in secrets for root in read_certificates(secret)]
    if not roots:
        raise CommandError(f"the Envoy of {name} has no root certificates: it has no secret {ROOTS}")
    return {root.fingerprint(hashes.SHA256()).hex(): root for root in roots}
