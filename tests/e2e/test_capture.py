"""Destinations of a pod's connections after `pilot-agent istio-iptables`, with kernel rules in network namespaces.

The tests use nftables, which needs no program. Set PYISTIOD_CAPTURE_BY=iptables to use iptables instead.
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
"""The arguments in the injection template for a pod without annotations."""
CASES: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "a pod without annotations": (
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
    "all networks except one": (
        "-i * -x 10.80.0.1/16",
        {},
        ["application → elsewhere 80: outside", "application → peer 80: outbound"],
    ),
    "loopback": (
        "-i 127.0.0.0/8,10.79.0.0/16",
        {"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.2/32"},
        [
            "application → loopback 8080: outbound",
            "application → pod 8080: outbound",
            "application → elsewhere 80: outside",
        ],
    ),
    "ports in any network": (
        "-i 10.80.0.0/16 -q 443",
        {},
        ["application → peer 443: outbound", "application → peer 80: outside"],
    ),
    "all ports except some": (
        "-i * -o 443,53",
        {},
        ["application → peer 443: outside", "application → peer 80: outbound"],
    ),
    "excluded interfaces": (
        "-i * -b * -c eth0,net+",
        {},
        ["application → peer 80: outside", "peer → pod 8080: application"],
    ),
    "excluded interfaces by prefix": (
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
    "all groups except some": (
        "-i *",
        {"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "7,9"},
        ["group 7 → peer 80: outside", "group 8 → peer 80: outbound"],
    ),
    "all DNS queries": (
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
    "DNS queries to the pod's name servers": (
        "-i '' --redirect-dns",
        {},
        [
            "application → elsewhere 53 udp: agent",
            "application → peer 53 udp: outside",
            "application → peer 53: outside",
            "application → elsewhere 53: agent",
        ],
    ),
    "DNS capture by the ProxyConfig variable": (
        "-i *",
        {"ISTIO_META_DNS_CAPTURE": "true"},
        ["application → elsewhere 53 udp: agent"],
    ),
    "invalid packets": (
        "-i * -b * --drop-invalid",
        {},
        ["peer → pod 8080: inbound", "application → peer 80: outbound"],
    ),
    "dual stack": (
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
    "IPv6 networks": (
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
            f"peer → pod 8080: inbound 8080 {PEER}",  # the original port and peer
            "peer → pod 15020: application",
            "peer → pod 15008: application",
            f"proxy with the peer's address → pod 8080: application 8080 {PEER}",
            "application → pod 8080: application",
            "proxy as 127.0.0.6 → pod 8080: application",
            "application → peer 80: outbound",
            "proxy → peer 80: outside",
        ],
    ),
    "TPROXY of one port, with a custom mark and table": (
        "-m TPROXY -b 8080 -t 1400 -r 134",
        {},
        [
            "peer → pod 8080: inbound 8080",
            "peer → pod 9090: application",
        ],
    ),
    "IPv6 TPROXY": (
        "-m TPROXY -b * --dual-stack",
        {},
        ["peer → pod6 8080: inbound 8080 fd00:79::1", "peer → pod 8080: inbound 8080"],
    ),
    "TPROXY with an excluded interface": ("-m TPROXY -b * -c eth0", {}, ["peer → pod 8080: application"]),
}


@pytest.fixture(scope="module")
def captured_pod() -> Iterator[Pod]:
    with pod() as running_pod:
        yield running_pod


@pytest.fixture(autouse=True)
def resolvers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure one name server, and hide the iptables programs unless they are requested."""
    path = tmp_path / "resolv.conf"
    path.write_text("search shop.svc.cluster.local\nnameserver 10.80.0.1\n")
    monkeypatch.setattr(network, "RESOLV_CONF", path)
    if os.environ.get("PYISTIOD_CAPTURE_BY") != "iptables":
        monkeypatch.setattr(restore, "is_installed", lambda *_, **__: False)


def check(pod: Pod, expected: list[str]) -> None:
    actual = []
    for line in expected:
        connection, _, expected_destination = line.rpartition(": ")
        caller, _, target = connection.partition(" → ")
        words = target.split()
        destination = pod.destination(caller, words[0], int(words[1]), *words[2:])
        actual.append(f"{connection}: {' '.join(destination.split()[: len(expected_destination.split())])}")
    assert actual == expected


def run_in_pod(pod: Pod, command: str) -> int:
    return pod.host.run(lambda: main(shlex.split(command)))


def rules(pod: Pod) -> list[str]:
    """Return all kernel rules in the pod."""

    def read() -> list[str]:
        lines = []
        for family in (2, 10):
            with NFTables(nfgen_family=family) as nft:
                lines += [
                    str([rule.get_attr(f"NFTA_RULE_{attribute}") for attribute in ("TABLE", "CHAIN", "EXPRESSIONS")])
                    for rule in nft.get_rules()
                ]
        return lines

    return pod.host.run(read)


@pytest.mark.parametrize("name", CASES)
def test_capture_by_flags(captured_pod: Pod, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    argv, environ, expected = CASES[name]
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    assert run_in_pod(captured_pod, f"istio-iptables {argv}") == 0
    try:
        check(captured_pod, expected)
    finally:
        assert run_in_pod(captured_pod, f"istio-clean-iptables {argv}") == 0
    assert rules(captured_pod) == []


def test_second_run_replaces_the_rules(captured_pod: Pod) -> None:
    run_in_pod(captured_pod, f"istio-iptables {INJECTED} -m TPROXY")
    first = rules(captured_pod)
    assert run_in_pod(captured_pod, f"istio-iptables {INJECTED} -m TPROXY --force-apply") == 0
    assert rules(captured_pod) == first
    check(captured_pod, CASES["TPROXY"][2])
    run_in_pod(captured_pod, "istio-iptables -i *")
    check(captured_pod, ["peer → pod 8080: application", "application → peer 80: outbound"])
    run_in_pod(captured_pod, "istio-clean-iptables")
    check(captured_pod, ["application → peer 80: outside", "peer → pod 8080: application"])
    run_in_pod(captured_pod, "istio-clean-iptables")
    assert rules(captured_pod) == []
    assert (
        captured_pod.host.run(lambda: [r.get("fwmark") for r in IPRoute().get_rules(family=2) if r.get("fwmark")]) == []
    )


def test_rejected_rules_change_nothing(captured_pod: Pod) -> None:
    run_in_pod(captured_pod, f"istio-iptables {INJECTED}")
    previous = rules(captured_pod)

    def enter() -> None:
        captured_pod.host.join()
        drop_capabilities()

    command = [sys.executable, "-m", "pilot.cli.pilot_agent", "istio-iptables", "-i", "*", "--native-nftables"]
    result = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "Error: nftables: Operation not permitted\n")
    assert rules(captured_pod) == previous
    run_in_pod(captured_pod, "istio-clean-iptables")


def test_many_rules_are_one_transaction(captured_pod: Pod) -> None:
    ports = ",".join(str(port) for port in range(1000, 1300))
    assert run_in_pod(captured_pod, f"istio-iptables -i * -o {ports} --native-nftables") == 0
    assert len(rules(captured_pod)) > 600
    check(captured_pod, ["application → peer 80: outbound"])
    run_in_pod(captured_pod, "istio-clean-iptables")
    assert rules(captured_pod) == []


@pytest.mark.parametrize(
    "command", ["istio-iptables -i * -b * --native-nftables --dry-run", "istio-iptables -i * -b * --skip-rule-apply"]
)
def test_dry_run_and_skipped_apply_change_nothing(
    captured_pod: Pod, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_in_pod(captured_pod, command) == 0
    assert rules(captured_pod) == []
    assert ("redirect to :15006" in capsys.readouterr().out) is ("--dry-run" in command)


def test_validation_without_apply(captured_pod: Pod) -> None:
    """With a CNI plugin, the init container only validates the rules."""
    command = f"istio-iptables {INJECTED} --skip-rule-apply --run-validation --probe-timeout 200ms -z 15007"
    assert run_in_pod(captured_pod, command) == 126
    run_in_pod(captured_pod, f"istio-iptables {INJECTED} -z 15007")
    try:
        assert run_in_pod(captured_pod, command) == 0
    finally:
        run_in_pod(captured_pod, "istio-clean-iptables")


def test_rules_in_another_network_namespace(captured_pod: Pod) -> None:
    path = f"/proc/{captured_pod.host.pid}/ns/net"
    assert captured_pod.network.node.run(lambda: main(["istio-iptables", "-i", "*", "--network-namespace", path])) == 0
    check(captured_pod, ["application → peer 80: outbound"])
    run_in_pod(captured_pod, "istio-clean-iptables")


def test_pod_addresses(captured_pod: Pod) -> None:
    assert next(str(address) for address in captured_pod.host.run(network.pod_addresses)) == POD
