"""`istio-iptables` and `istio-clean-iptables`: rules follow from settings, and all of ours are replaced by them, or taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyroute2 import netns

from pilot.agent.capture import iptables_restore as restore
from pilot.agent.capture import nftables_netlink as netlink
from pilot.agent.capture import nftables_script as nftables
from pilot.agent.capture import pod_network as network
from pilot.agent.capture.capture_check import probe
from pilot.agent.capture.capture_config import CaptureConfig, Transparent, parse_capture_config
from pilot.agent.capture.capture_settings import CaptureSettings, WorkSettings
from pilot.agent.capture.errors import CaptureCheckError, RulesError
from pilot.agent.capture.pod_chains import build_chains
from pilot.agent.capture.rule_language import CaptureChain, Family
from pilot.lib import log
from pilot.lib.flags import FlagError

NOT_CAPTURED = 126
"""Exit status by which a CNI plugin knows that it has to set the pod up again."""
_log = log.scope("default")
Chains = Mapping[Family, Sequence[CaptureChain]]


def run(settings: CaptureSettings) -> int:
    """Does what settings ask for; returns the exit status. FlagError and RulesError where that cannot be."""
    work = settings.work
    if work.namespace:
        _enter(work.namespace)
    if work.clean:
        return _clean(settings)
    wanted = parse_capture_config(settings, _name_servers)
    own = network.addresses()
    chains = {
        family: build_chains(wanted, family) for family in network.captured_families(own, settings.pod.dual_stack)
    }
    if work.dry_run:
        print(_text(chains, work), end="")
    elif not work.skip:
        _apply(chains, work, wanted)
    if work.validate and not work.dry_run:
        return _validate(settings, wanted, own)
    return 0


def _name_servers() -> list[str]:
    try:
        return network.name_servers(network.RESOLVERS)
    except OSError as error:
        raise RulesError(
            f"{network.RESOLVERS}: {error.strerror}; without it nobody knows which questions for names are to be captured"
        ) from error


def _apply(chains: Chains, work: WorkSettings, wanted: CaptureConfig) -> None:
    network.prepare(chains, wanted.transparent)
    if _by_iptables(work):
        restore.apply(chains)
    else:
        netlink.apply(chains)
    how = "iptables" if _by_iptables(work) else "nftables"
    _log.info("%s has %d rules", how, sum(len(chain.rules) for found in chains.values() for chain in found))


def _clean(settings: CaptureSettings) -> int:
    """Takes the rules away, whoever made them."""
    if settings.work.dry_run:
        print(_text({}, settings.work), end="")
        return 0
    netlink.apply({})
    if restore.there():
        restore.apply({})
    network.forget(Family, Transparent(settings.inbound.mark, settings.inbound.table))
    return 0


def _by_iptables(work: WorkSettings) -> bool:
    return restore.there() and not work.native


def _text(chains: Chains, work: WorkSettings) -> str:
    if not _by_iptables(work):
        return nftables.script(chains)
    return "".join(
        restore.text(family, chains.get(family, ())) for family in Family if chains.get(family) or restore.there(family)
    )


def _validate(settings: CaptureSettings, wanted: CaptureConfig, own: Sequence[network.Address]) -> int:
    """Returns 0 where connections are captured."""
    work = settings.work
    if not own:
        raise RulesError("this network namespace has no address by which others reach it")
    try:
        probe(own[0], work.probe_port, wanted.inbound_port, wanted.users[0], work.probe_timeout.seconds)
    except CaptureCheckError as error:
        _log.error("%s", error)
        return NOT_CAPTURED
    _log.info("connections are captured")
    return 0


def _enter(path: str) -> None:
    """Goes on in another network namespace."""
    try:
        netns.setns(path)
    except OSError as error:
        raise FlagError(f"invalid argument for --network-namespace: {path}: {error.strerror}") from error
