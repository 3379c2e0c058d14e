"""The commands `istio-iptables` and `istio-clean-iptables`, which apply and remove rules in a network namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyroute2 import netns

from pilot.agent.capture import iptables_restore, nftables_netlink, pod_network
from pilot.agent.capture.capture_check import CaptureCheckError, check_capture
from pilot.agent.capture.capture_config import CaptureConfig, Tproxy, parse_capture_config
from pilot.agent.capture.capture_rules import CaptureChain, Family, RulesError
from pilot.agent.capture.capture_settings import CaptureSettings, OperationSettings
from pilot.agent.capture.nftables_script import build_script
from pilot.agent.capture.pod_chains import build_pod_chains
from pilot.lib.flags import FlagError
from pilot.lib.logging import log

NOT_CAPTURED = 126
"""Exit status that tells a CNI plugin to set up the pod again."""
VARIANTS = ("", "legacy", "nft")
_log = log.scope("default")
Chains = Mapping[Family, Sequence[CaptureChain]]


def run(settings: CaptureSettings) -> int:
    """Run the command and return the exit status. Raises FlagError and RulesError."""
    operation = settings.operation
    if operation.variant not in VARIANTS:
        raise FlagError(
            f"invalid argument for --force-iptables-binary: {operation.variant!r} is neither legacy nor nft"
        )
    if operation.namespace:
        _enter_namespace(operation.namespace)
    if operation.clean:
        return _clean(settings)
    config = parse_capture_config(settings, _name_servers)
    addresses = pod_network.pod_addresses()
    chains = {
        family: build_pod_chains(config, family)
        for family in pod_network.captured_families(addresses, settings.pod.dual_stack)
    }
    if operation.dry_run:
        print(_dry_run_output(chains, operation), end="")
    elif not operation.skip:
        _apply(chains, operation, config)
    if operation.validate and not operation.dry_run:
        return _validate(settings, config, addresses)
    return 0


def _name_servers() -> list[str]:
    try:
        return pod_network.read_name_servers(pod_network.RESOLV_CONF)
    except OSError as error:
        raise RulesError(
            f"cannot determine the DNS servers to capture: {pod_network.RESOLV_CONF}: {error.strerror}"
        ) from error


def _apply(chains: Chains, operation: OperationSettings, config: CaptureConfig) -> None:
    pod_network.add_routes(chains, config.tproxy)
    if _uses_iptables(operation):
        iptables_restore.apply(chains, operation.variant)
    else:
        nftables_netlink.apply(chains)
    backend = "iptables" if _uses_iptables(operation) else "nftables"
    rules = sum(len(chain.rules) for family_chains in chains.values() for chain in family_chains)
    _log.info("applied %d rules with %s", rules, backend)


def _clean(settings: CaptureSettings) -> int:
    """Remove the rules from both iptables and nftables."""
    if settings.operation.dry_run:
        print(_dry_run_output({}, settings.operation), end="")
        return 0
    nftables_netlink.apply({})
    if iptables_restore.is_installed(variant=settings.operation.variant):
        iptables_restore.apply({}, settings.operation.variant)
    pod_network.remove_routes(Family, Tproxy(settings.inbound.mark, settings.inbound.table))
    return 0


def _uses_iptables(operation: OperationSettings) -> bool:
    """Return whether iptables applies the rules. A variant that the user forces must be installed."""
    return not operation.native and bool(operation.variant or iptables_restore.is_installed())


def _dry_run_output(chains: Chains, operation: OperationSettings) -> str:
    if not _uses_iptables(operation):
        return build_script(chains)
    return "".join(
        iptables_restore.restore_input(family, chains.get(family, ()), operation.variant)
        for family in Family
        if chains.get(family) or iptables_restore.is_installed(family, operation.variant)
    )


def _validate(settings: CaptureSettings, config: CaptureConfig, addresses: Sequence[pod_network.Address]) -> int:
    """Check that connections are captured, and return the exit status."""
    operation = settings.operation
    if not addresses:
        raise RulesError("this network namespace has no address that other machines can reach")
    try:
        check_capture(
            addresses[0],
            operation.probe_port,
            config.inbound_port,
            config.proxy_users[0],
            operation.probe_timeout.seconds,
        )
    except CaptureCheckError as error:
        _log.error("%s", error)
        return NOT_CAPTURED
    _log.info("connections are captured")
    return 0


def _enter_namespace(path: str) -> None:
    """Switch to another network namespace."""
    try:
        netns.setns(path)
    except OSError as error:
        raise FlagError(f"invalid argument for --network-namespace: {path}: {error.strerror}") from error
