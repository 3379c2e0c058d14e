"""Where connections of a pod go once `pilot-agent istio-iptables` has run: rules of a real kernel, in network namespaces.

They go there by nftables, which needs no program; on a machine with iptables PYISTIOD_CAPTURE_BY=iptables has them go there by that.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute
from pyroute2.nftables.main import NFTables

from pilot.agent.capture import iptables_restore as restore
from pilot.agent.capture import pod_network as network
from pilot.cli.pilot_agent import main
from testing.processes.captured_pod import PEER, POD, Pod, pod
from testing.processes.sidecar import drop_capabilities

INJECTED = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x '' -b * -d 15090,15021,15020"
"""What our template gives a pod without annotations."""
CASES: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "what a pod without annotations has": (
        INJECTED,
        {},
        [
            "application → peer 80: outbound",
            "proxy → peer 80: outside",
            "user of the proxy → peer 80: outside",
            "group of the proxy → peer 80: outside",
            "peer → pod 8080: inbound",
            "peer → pod 15020: application",
            "peer → pod 15008: application",
            "application → loopback 8080: application",
            "application → pod 8080: application",
            "proxy → pod 8080: inbound",
            "group of the proxy → pod 8080: inbound",
            "proxy → loopback 8080: application",
            "proxy as 127.0.0.6 → pod 8080: application",
            "application → peer 53 udp: outside",
            "application → peer6 80: outside",
        ],
    ),
    "other ports of the proxy": (
        "-p 15053 -z 15020 -e 9090 -i * -b *",
        {},
        [
            "application → peer 80: agent",
            "peer → pod 8080: application 15020",
            "peer → pod 9090: application 9090",
            "peer → pod 15008: application 15020",
        ],
    ),
    "variables in place of flags": (
        "",
        {"ISTIO_SERVICE_CIDR": "*", "ISTIO_INBOUND_PORTS": "8080", "PROXY_UID": "1000", "PROXY_GID": "7"},
        [
            "application → peer 80: outside",
            "group 7 → peer 80: outside",
            "proxy → peer 80: outbound",
            "peer → pod 8080: inbound",
            "peer → pod 9090: application",
        ],
    ),
    "nothing inbound": ("-i * -b ''", {}, ["peer → pod 8080: application", "application → peer 80: outbound"]),
    "some inbound ports": (
        "-b 8080,9090 -d 9090",
        {},
        ["peer → pod 8080: inbound", "peer → pod 9090: inbound", "peer → pod 15020: application"],
    ),
    "nothing outbound": ("-b *", {}, ["application → peer 80: outside", "peer → pod 8080: inbound"]),
    "networks": (
        "-i 10.80.0.0/16,10.79.0.1/32",
        {},
        ["application → elsewhere 80: outbound", "application → peer 80: outbound"],
    ),
    "one network of two": (
        "-i 10.80.0.0/16",
        {},
        ["application → elsewhere 80: outbound", "application → peer 80: outside"],
    ),
    "all networks but one": (
        "-i * -x 10.80.0.1/16",
        {},
        ["application → elsewhere 80: outside", "application → peer 80: outbound"],
    ),
    "the own machine": (
        "-i 127.0.0.0/8,10.79.0.0/16",
        {"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.2/32"},
        [
            "application → loopback 8080: outbound",
            "application → pod 8080: outbound",
            "application → elsewhere 80: outside",
        ],
    ),
    "ports whatever the network": (
        "-i 10.80.0.0/16 -q 443",
        {},
        ["application → peer 443: outbound", "application → peer 80: outside"],
    ),
    "all ports but some": (
        "-i * -o 443,53",
        {},
        ["application → peer 443: outside", "application → peer 80: outbound"],
    ),
    "an interface of which nothing is": (
        "-i * -b * -c eth0,net+",
        {},
        ["application → peer 80: outside", "peer → pod 8080: application"],
    ),
    "interfaces by how their names begin": (
        "-i * -b * -c et+",
        {},
        ["application → peer 80: outside", "peer → pod 8080: application"],
    ),
    "a virtual machine": ("-i * -b * -k eth0", {}, ["peer → pod 8080: outbound", "application → peer 80: outbound"]),
    "a virtual machine, one network": ("-i 10.80.0.0/16 -b * -k eth0", {}, ["peer → pod 8080: application"]),
    "some groups": (
        "-i *",
        {"ISTIO_OUTBOUND_OWNER_GROUPS": "7,9"},
        ["group 7 → peer 80: outbound", "group 8 → peer 80: outside"],
    ),
    "all groups but some": (
        "-i *",
        {"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "7,9"},
        ["group 7 → peer 80: outside", "group 8 → peer 80: outbound"],
    ),
    "every question for a name": (
        "-i * -b * --redirect-dns --capture-all-dns",
        {},
        [
            "application → peer 53: agent",
            "application → peer 53 udp: agent",
            "application → loopback 53: agent",
            "proxy → peer 53: outside",
            "proxy → peer 53 udp: outside",
            "application → peer 80: outbound",
            "proxy → pod 8080: inbound",
            "proxy → pod 53: application",
            "application → pod 8080: application",
        ],
    ),
    "questions to the pod's own servers": (
        "-i '' --redirect-dns",
        {},
        [
            "application → elsewhere 53 udp: agent",
            "application → peer 53 udp: outside",
            "application → peer 53: outside",
            "application → elsewhere 53: agent",
        ],
    ),
    "questions by the variable of the ProxyConfig": (
        "-i *",
        {"ISTIO_META_DNS_CAPTURE": "true"},
        ["application → elsewhere 53 udp: agent"],
    ),
    "packets of no connection": (
        "-i * -b * --drop-invalid",
        {},
        ["peer → pod 8080: inbound", "application → peer 80: outbound"],
    ),
    "both families of addresses": (
        f"{INJECTED} --dual-stack",
        {},
        [
            "application → peer6 80: outbound",
            "peer → pod6 8080: inbound",
            "proxy → peer6 80: outside",
            "proxy → pod6 8080: inbound",
            "application → peer 80: outbound",
        ],
    ),
    "networks of IPv6": (
        "-i fd00:79::/64 -x fd00:79::7/128 --dual-stack",
        {},
        [
            "application → peer6 80: outbound",
            "application → peer 80: outside",
        ],
    ),
    "TPROXY": (
        "-u 1337 -m TPROXY -i * -b * -d 15020",
        {},
        [
            f"peer → pod 8080: inbound 8080 {PEER}",  # the port and the caller as they were
            "peer → pod 15020: application",
            "peer → pod 15008: application",
            f"proxy in the name of the peer → pod 8080: application 8080 {PEER}",
            "application → pod 8080: application",
            "proxy as 127.0.0.6 → pod 8080: application",
            "application → peer 80: outbound",
            "proxy → peer 80: outside",
        ],
    ),
    "TPROXY of one port, with another mark and table": (
        "-m TPROXY -b 8080 -t 1400 -r 134",
        {},
        [
            "peer → pod 8080: inbound 8080",
            "peer → pod 9090: application",
        ],
    ),
    "TPROXY of IPv6": (
        "-m TPROXY -b * --dual-stack",
        {},
        ["peer → pod6 8080: inbound 8080 fd00:79::1", "peer → pod 8080: inbound 8080"],
    ),
    "TPROXY, but of an interface": ("-m TPROXY -b * -c eth0", {}, ["peer → pod 8080: application"]),
}


@pytest.fixture(scope="module")
def captured() -> Iterator[Pod]:
    with pod() as made:
        yield made


@pytest.fixture(autouse=True)
def resolvers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod asks one server; and no program of iptables is there, unless that is asked for."""
    path = tmp_path / "resolv.conf"
    path.write_text("search shop.svc.cluster.local\nnameserver 10.80.0.1\n")
    monkeypatch.setattr(network, "RESOLV_CONF", path)
    if os.environ.get("PYISTIOD_CAPTURE_BY") != "iptables":
        monkeypatch.setattr(restore, "is_installed", lambda *_: False)


def check(pod: Pod, expected: list[str]) -> None:
    found = []
    for line in expected:
        asked, _, answer = line.rpartition(": ")
        caller, _, target = asked.partition(" → ")
        words = target.split()
        got = pod.reached(caller, words[0], int(words[1]), *words[2:])
        found.append(f"{asked}: {' '.join(got.split()[: len(answer.split())])}")
    assert found == expected


def inside(pod: Pod, command: str) -> int:
    return pod.host.run(lambda: main(shlex.split(command)))


def rules(pod: Pod) -> list[str]:
    """Every rule that the kernel has in the pod."""

    def read() -> list[str]:
        found = []
        for family in (2, 10):
            with NFTables(nfgen_family=family) as nft:
                found += [
                    str([rule.get_attr(f"NFTA_RULE_{what}") for what in ("TABLE", "CHAIN", "EXPRESSIONS")])
                    for rule in nft.get_rules()
                ]
        return found

    return pod.host.run(read)


@pytest.mark.parametrize("name", CASES)
def test_connections_go_where_the_flags_say(captured: Pod, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    argv, environ, expected = CASES[name]
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    assert inside(captured, f"istio-iptables {argv}") == 0
    try:
        check(captured, expected)
    finally:
        assert inside(captured, f"istio-clean-iptables {argv}") == 0
    assert rules(captured) == []


def test_rules_are_the_same_after_a_second_time(captured: Pod) -> None:
    inside(captured, f"istio-iptables {INJECTED} -m TPROXY")
    once = rules(captured)
    assert inside(captured, f"istio-iptables {INJECTED} -m TPROXY --force-apply") == 0
    assert rules(captured) == once
    check(captured, CASES["TPROXY"][2])
    inside(captured, "istio-iptables -i *")
    check(captured, ["peer → pod 8080: application", "application → peer 80: outbound"])
    inside(captured, "istio-clean-iptables")
    check(captured, ["application → peer 80: outside", "peer → pod 8080: application"])
    inside(captured, "istio-clean-iptables")
    assert rules(captured) == []
    assert captured.host.run(lambda: [r.get("fwmark") for r in IPRoute().get_rules(family=2) if r.get("fwmark")]) == []


def test_rules_that_the_kernel_refuses_change_nothing(captured: Pod) -> None:
    inside(captured, f"istio-iptables {INJECTED}")
    before = rules(captured)

    def enter() -> None:
        captured.host.join()
        drop_capabilities()

    command = [sys.executable, "-m", "pilot.cli.pilot_agent", "istio-iptables", "-i", "*", "--native-nftables"]
    done = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Error: nftables: Operation not permitted\n")
    assert rules(captured) == before
    inside(captured, "istio-clean-iptables")


def test_many_rules_are_one_transaction(captured: Pod) -> None:
    many = ",".join(str(port) for port in range(1000, 1300))
    assert inside(captured, f"istio-iptables -i * -o {many} --native-nftables") == 0
    assert len(rules(captured)) > 600
    check(captured, ["application → peer 80: outbound"])
    inside(captured, "istio-clean-iptables")
    assert rules(captured) == []


@pytest.mark.parametrize(
    "command", ["istio-iptables -i * -b * --native-nftables --dry-run", "istio-iptables -i * -b * --skip-rule-apply"]
)
def test_nothing_changes_where_that_is_asked_for(
    captured: Pod, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inside(captured, command) == 0
    assert rules(captured) == []
    assert ("redirect to :15006" in capsys.readouterr().out) is ("--dry-run" in command)


def test_whether_connections_are_captured_can_be_asked(captured: Pod) -> None:
    """The init container beside a CNI plugin does this: it sets up nothing itself."""
    asked = f"istio-iptables {INJECTED} --skip-rule-apply --run-validation --probe-timeout 200ms -z 15007"
    assert inside(captured, asked) == 126
    inside(captured, f"istio-iptables {INJECTED} -z 15007")
    try:
        assert inside(captured, asked) == 0
    finally:
        inside(captured, "istio-clean-iptables")


def test_another_namespace_can_be_named(captured: Pod) -> None:
    path = f"/proc/{captured.host.pid}/ns/net"
    assert captured.network.node.run(lambda: main(["istio-iptables", "-i", "*", "--network-namespace", path])) == 0
    check(captured, ["application → peer 80: outbound"])
    inside(captured, "istio-clean-iptables")


def test_addresses_are_those_of_the_pod(captured: Pod) -> None:
    assert next(str(each) for each in captured.host.run(network.pod_addresses)) == POD
