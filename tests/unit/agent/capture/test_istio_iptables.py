"""Steps of `istio-iptables` and `istio-clean-iptables` in a network namespace.

Kernel and programs are stubs that record requests; tests/e2e/test_capture.py runs them for real.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from pilot.agent.capture import iptables_restore as restore
from pilot.agent.capture import istio_iptables as run
from pilot.agent.capture import nftables_netlink as netlink
from pilot.agent.capture import pod_network as network
from pilot.agent.capture.capture_check import CaptureCheckError
from pilot.agent.capture.capture_rules import Family, RulesError
from pilot.agent.capture.capture_settings import CaptureSettings
from pilot.lib.flags import FlagError
from pilot.settings.parse import load_sections

V4, V6 = "family=2", "family=10"
RULE, ROUTE = "rule add {} fwmark={} table={}", "route replace {} dst={} oif=1 table={} type=2 scope={}"
POD = ("127.0.0.1", "10.0.0.7", "fe80::1", "fd00::7")
SCRIPT = """\
table ip istio-proxy
delete table ip istio-proxy
table ip istio-proxy {
  chain nat_ISTIO_IN_REDIRECT {
    meta l4proto tcp redirect to :15006
  }
  chain nat_ISTIO_INBOUND {
    meta l4proto tcp tcp dport 15008 return
    meta l4proto tcp tcp dport 80 jump nat_ISTIO_IN_REDIRECT
  }
  chain nat_ISTIO_PRERT {
    type nat hook prerouting priority -100; policy accept;
    meta l4proto tcp jump nat_ISTIO_INBOUND
  }
  chain nat_ISTIO_REDIRECT {
    meta l4proto tcp redirect to :15001
  }
  chain nat_ISTIO_OUTPUT {
    type nat hook output priority -100; policy accept;
    oifname "lo" ip saddr 127.0.0.6/32 return
    meta l4proto tcp oifname "lo" ip daddr != 127.0.0.1/32 tcp dport != 15008 meta skuid 1337 jump nat_ISTIO_IN_REDIRECT
    meta l4proto tcp oifname "lo" ip daddr != 127.0.0.1/32 tcp dport != 15008 meta skgid 1337 jump nat_ISTIO_IN_REDIRECT
    oifname "lo" meta skuid != 1337 meta skgid != 1337 return
    meta skuid 1337 return
    meta skgid 1337 return
    ip daddr 127.0.0.1/32 return
    ip daddr 10.0.0.0/8 jump nat_ISTIO_REDIRECT
  }
}
table ip6 istio-proxy
delete table ip6 istio-proxy
"""


class Namespace:
    """A network namespace: its addresses, a record of changes, and the error code for the next kernel change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses, self.steps, self.error_code = list(POD), list[str](), 0
        self.has_iptables, self.is_captured = False, True
        monkeypatch.setattr(network, "IPRoute", lambda: self)
        monkeypatch.setattr(netlink, "apply", lambda chains: self.steps.append(f"nftables: {self.count_rules(chains)}"))
        monkeypatch.setattr(
            restore, "apply", lambda chains, variant="": self.steps.append(f"iptables: {self.count_rules(chains)}")
        )
        monkeypatch.setattr(restore, "is_installed", lambda *_, **__: self.has_iptables)
        monkeypatch.setattr(run, "check_capture", self.probe)
        monkeypatch.setattr("pilot.agent.capture.istio_iptables.netns.setns", self.enter)

    @staticmethod
    def count_rules(chains: Any) -> str:
        return (
            " ".join(
                f"{int(family)}={sum(len(chain.rules) for chain in family_chains)}"
                for family, family_chains in chains.items()
            )
            or "none"
        )

    def enter(self, path: str) -> None:
        if path == "/gone":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        self.steps.append(f"in {path}")

    def probe(self, *arguments: Any) -> None:
        self.steps.append(f"probe {' '.join(map(str, arguments))}")
        if not self.is_captured:
            raise CaptureCheckError("it goes elsewhere")

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *_: object) -> None:
        """No resources to close."""

    def get_addr(self) -> list[dict[str, str]]:
        return [{"address": address} for address in self.addresses]

    def link_lookup(self, ifname: str) -> list[int]:
        return {"lo": [1]}[ifname]

    def addr(self, verb: str, **attributes: Any) -> None:
        self.change("addr", verb, attributes)

    def rule(self, verb: str, **attributes: Any) -> None:
        self.change("rule", verb, attributes)

    def route(self, verb: str, **attributes: Any) -> None:
        self.change("route", verb, attributes)

    def change(self, kind: str, verb: str, attributes: Mapping[str, Any]) -> None:

        self.steps.append(" ".join([kind, verb, *(f"{name}={value}" for name, value in attributes.items())]))
        if self.error_code:
            raise NetlinkError(self.error_code)

    def run(self, argv: str, **environ: str) -> int:
        return run.run(load_sections(CaptureSettings(), shlex.split(argv), environ).settings)


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Namespace:
    return Namespace(monkeypatch)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("-i * -b 80 -u 1337", ["nftables: 4=13"]),
        ("-i * -b 80 -u 1337 --dual-stack", ["addr add index=1 address=::6 prefixlen=128", "nftables: 4=13 6=13"]),
        (
            "-i * -b 80 -u 1337 -m TPROXY -t 7 -r 134 --dual-stack",
            [
                RULE.format(V4, 7, 134),
                ROUTE.format(V4, "0.0.0.0/0", 134, 254),
                "addr add index=1 address=::6 prefixlen=128",
                RULE.format(V6, 7, 134),
                ROUTE.format(V6, "::/0", 134, 0),
                "nftables: 4=27 6=27",
            ],
        ),
        ("-i * -b 80 -u 1337 --network-namespace /pods/1", ["in /pods/1", "nftables: 4=13"]),
        ("-i * -b 80 -u 1337 --skip-rule-apply", []),
        ("-i * -b 80 -u 1337 -z 15007 --skip-rule-apply --run-validation", ["probe 10.0.0.7 15002 15007 1337 5.0"]),
        (
            "-i * -b 80 -u 1,2 --run-validation --iptables-probe-port 1 --probe-timeout 100ms",
            ["nftables: 4=17", "probe 10.0.0.7 1 15006 1 0.1"],
        ),
        (
            "--cleanup-only",
            [
                "nftables: none",
                "rule del family=2 fwmark=1337 table=133",
                "route del family=2 dst=0.0.0.0/0 oif=1 table=133 type=2 scope=254",
                "rule del family=10 fwmark=1337 table=133",
                "route del family=10 dst=::/0 oif=1 table=133 type=2 scope=0",
            ],
        ),
    ],
)
def test_steps_per_flags(pod: Namespace, argv: str, expected: list[str]) -> None:
    assert pod.run(argv) == 0
    assert pod.steps == expected


def test_iptables_is_preferred_over_nftables(pod: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    pod.has_iptables = True
    pod.run("-i * -b 80 -u 1337")
    pod.run("-i * -b 80 -u 1337 --native-nftables")
    assert pod.steps == ["iptables: 4=13", "nftables: 4=13"]
    assert [record.getMessage() for record in caplog.records] == [
        "applied 13 rules with iptables",
        "applied 13 rules with nftables",
    ]
    pod.steps.clear()
    pod.run("--cleanup-only")
    assert pod.steps[:2] == ["nftables: none", "iptables: none"]


def test_dry_run_prints_rules_and_changes_nothing(pod: Namespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert pod.run("-i 10.0.0.0/8 -b 80 -u 1337 --dry-run --run-validation") == 0
    assert capsys.readouterr().out == SCRIPT
    assert pod.run("--cleanup-only --dry-run") == 0
    assert (
        capsys.readouterr().out
        == "table ip istio-proxy\ndelete table ip istio-proxy\ntable ip6 istio-proxy\ndelete table ip6 istio-proxy\n"
    )
    assert pod.steps == []


def test_failed_validation_sets_the_exit_status(pod: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    argv = "-u 1337 --skip-rule-apply --run-validation"
    assert pod.run(argv) == 0
    pod.is_captured = False
    assert pod.run(argv) == 126
    pod.addresses = ["127.0.0.1"]
    with pytest.raises(RulesError, match="this network namespace has no address that other machines can reach"):
        pod.run(argv)
    assert [record.getMessage() for record in caplog.records] == ["connections are captured", "it goes elsewhere"]


def test_missing_namespace_error_names_the_flag(pod: Namespace) -> None:
    with pytest.raises(FlagError, match="invalid argument for --network-namespace: /gone: No such file or directory"):
        pod.run("--network-namespace /gone")


def test_dns_capture_needs_a_resolv_conf(pod: Namespace, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "RESOLV_CONF", tmp_path / "resolv.conf")
    with pytest.raises(
        RulesError, match=r"cannot determine the DNS servers to capture: .*resolv.conf: No such file or directory"
    ):
        pod.run("--redirect-dns")
    assert pod.steps == []


@pytest.mark.parametrize(
    ("argv", "code"),
    [("-m TPROXY -b * -i *", 17), ("--cleanup-only", 2), ("--cleanup-only", 3), ("--cleanup-only", 99)],
)
def test_existing_or_missing_objects_are_no_error(pod: Namespace, argv: str, code: int) -> None:
    pod.error_code = code
    assert pod.run(argv) == 0


@pytest.mark.parametrize(
    ("argv", "code"),
    [("-m TPROXY -b * -i *", 1), ("-m TPROXY -b * -i *", 2), ("--cleanup-only", 17), ("--cleanup-only", 1)],
)
def test_kernel_errors_are_reported(pod: Namespace, argv: str, code: int) -> None:
    pod.error_code = code
    with pytest.raises(RulesError, match=r"^rule: "):
        pod.run(argv)


def test_pod_addresses_come_from_the_interfaces(pod: Namespace) -> None:
    assert network.pod_addresses() == [ipaddress.ip_address("10.0.0.7"), ipaddress.ip_address("fd00::7")]
    assert network.captured_families(network.pod_addresses(), dual_stack=False) == (Family.V4,)
