"""Rules of a pod: what each flag adds to them, in the words of iptables and of nftables. tests/e2e/test_capture.py has them in a kernel."""

from __future__ import annotations

import ipaddress
import pathlib
import shlex
from collections.abc import Mapping, Sequence

import pytest

from pilot.agent.capture import iptables_restore as restore
from pilot.agent.capture import pod_network as network
from pilot.agent.capture.capture_config import parse_capture_config
from pilot.agent.capture.capture_rules import CaptureChain, Family, RulesError
from pilot.agent.capture.capture_settings import CaptureSettings
from pilot.agent.capture.iptables_text import build_restore_input
from pilot.agent.capture.nftables_script import build_script
from pilot.agent.capture.pod_chains import build_pod_chains
from pilot.cli.pilot_agent import main
from pilot.lib.flags import FlagError
from pilot.settings.parse import load_sections

INJECTED = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x '' -b * -d 15090,15021,15020"
WHOLE = """\
*nat
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_INBOUND - [0:0]
:ISTIO_PRERT - [0:0]
:ISTIO_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15021 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15020 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_PRERT -p tcp -j ISTIO_INBOUND
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_OUTPUT -o lo -s 127.0.0.6/32 -j RETURN
-A ISTIO_OUTPUT -p tcp -o lo ! -d 127.0.0.1/32 ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -p tcp -o lo ! -d 127.0.0.1/32 ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -m owner ! --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A PREROUTING -j ISTIO_PRERT
-A OUTPUT -j ISTIO_OUTPUT
COMMIT
"""
# What each flag and variable changes in the rules of INJECTED: lines that come (+) and lines that go (-).
CHANGES: list[tuple[str, dict[str, str], str]] = [
    (
        "-p 1",
        {},
        "+-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 1\n--A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001",
    ),
    (
        "-z 1",
        {},
        "+-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 1\n--A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006",
    ),
    ("-d 1", {}, "+-A ISTIO_INBOUND -p tcp --dport 1 -j RETURN\n--A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN"),
    (
        "-b 1",
        {},
        "+-A ISTIO_INBOUND -p tcp --dport 1 -j ISTIO_IN_REDIRECT\n--A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT",
    ),
    ("-b ''", {}, "--A PREROUTING -j ISTIO_PRERT\n--A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT"),
    ("-e 1", {}, "+-A ISTIO_INBOUND -p tcp --dport 1 -j RETURN\n--A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN"),
    (
        "-u 1",
        {},
        "+-A ISTIO_OUTPUT -m owner --uid-owner 1 -j RETURN\n+-A ISTIO_OUTPUT -m owner --gid-owner 1 -j RETURN",
    ),
    (
        "-u root -g 1,2",
        {},
        "+-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 0 -m owner ! --gid-owner 1 -m owner ! --gid-owner 2 -j RETURN",
    ),
    ("-i ''", {}, "--A ISTIO_OUTPUT -j ISTIO_REDIRECT"),
    (
        "-i 10.0.0.0/8,fd00::/8",
        {},
        "+-A ISTIO_OUTPUT -d 10.0.0.0/8 -j ISTIO_REDIRECT\n--A ISTIO_OUTPUT -j ISTIO_REDIRECT",
    ),
    ("-i 127.0.0.0/8", {}, "--A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -m owner ! --gid-owner 1337 -j RETURN"),
    ("-x 10.1.2.3/16", {}, "+-A ISTIO_OUTPUT -d 10.1.0.0/16 -j RETURN"),
    ("-q 1", {}, "+-A ISTIO_OUTPUT -p tcp --dport 1 -j ISTIO_REDIRECT"),
    ("-o 1", {}, "+-A ISTIO_OUTPUT -p tcp --dport 1 -j RETURN\n+-A ISTIO_OUTPUT -p udp --dport 1 -j RETURN"),
    ("-c eth1", {}, "+-A ISTIO_OUTPUT -o eth1 -j RETURN\n+-A ISTIO_PRERT -i eth1 -j RETURN"),
    ("-k vm0", {}, "+-A ISTIO_PRERT -i vm0 -j ISTIO_REDIRECT\n+-A ISTIO_PRERT -i vm0 -j RETURN"),
    (
        "",
        {"ISTIO_OUTBOUND_OWNER_GROUPS": "1,2"},
        "+-A ISTIO_OUTPUT -m owner ! --gid-owner 1 -m owner ! --gid-owner 2 -j RETURN",
    ),
    ("", {"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "root"}, "+-A ISTIO_OUTPUT -m owner --gid-owner 0 -j RETURN"),
    ("", {"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.0/8"}, "+-A ISTIO_OUTPUT -d 127.0.0.0/8 -j RETURN"),
    ("--drop-invalid", {}, "+-A ISTIO_PRERT -m conntrack --ctstate INVALID -j DROP"),
    ("", {"INVALID_DROP": "true"}, "+*mangle"),
    (
        "--redirect-dns",
        {},
        "+-A ISTIO_OUTPUT_DNS -p udp --dport 53 -d 1.1.1.1/32 -j REDIRECT --to-ports 15053\n"
        "+-A ISTIO_OUTPUT_DNS -p tcp --dport 53 -d 1.1.1.1/32 -j REDIRECT --to-ports 15053\n+-A ISTIO_OUTPUT -j ISTIO_OUTPUT_DNS\n"
        "+-A ISTIO_OUTPUT_DNS -p udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1\n"
        "+-A ISTIO_OUTPUT_DNS -p udp --sport 15053 -m owner --gid-owner 1337 -j CT --zone 2\n"
        "+-A ISTIO_PRERT_DNS -p udp --sport 53 -s 1.1.1.1/32 -j CT --zone 1",
    ),
    ("", {"ISTIO_META_DNS_CAPTURE": "true"}, "+*raw"),
    (
        "--redirect-dns --capture-all-dns",
        {},
        "+-A ISTIO_OUTPUT_DNS -p udp --dport 53 -j REDIRECT --to-ports 15053\n"
        "+-A ISTIO_OUTPUT -p tcp -o lo ! --dport 53 -m owner ! --uid-owner 1337 -m owner ! --gid-owner 1337 -j RETURN",
    ),
    ("--capture-all-dns", {}, ""),
    (
        "-m TPROXY -t 7",
        {},
        "+-A ISTIO_TPROXY -p tcp ! -d 127.0.0.1/32 -j TPROXY --on-port 15006 --tproxy-mark 7\n"
        "+-A ISTIO_DIVERT -j MARK --set-mark 7\n"
        "+-A ISTIO_OUTPUT -p tcp -m connmark --mark 7 -j CONNMARK --restore-mark\n+-A ISTIO_PRERT -p tcp -m mark --mark 7 -j CONNMARK --save-mark\n"
        "+-A ISTIO_INBOUND -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT\n--A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT",
    ),
]
REFUSED = {
    "-m tproxy": "--istio-inbound-interception-mode: 'tproxy' is neither REDIRECT nor TPROXY",
    "-b 80,x": "--istio-inbound-ports: 'x' is not a port",
    "-d 65536": "--istio-local-exclude-ports: '65536' is not a port",
    "-q 0": "--istio-outbound-ports: '0' is not a port",
    "-o -1": "--istio-local-outbound-ports-exclude: '-1' is not a port",
    "-p 70000": "--envoy-port: '70000' is not a port",
    "-z x": "--inbound-capture-port: 'x' is not an integer",
    "-i 10.0.0.0/33": "--istio-service-cidr: '10.0.0.0/33' does not appear",
    "-x *": "--istio-service-exclude-cidr: \\* would exclude all networks",
    "-u nobody-has-this-name": "--proxy-uid: .*nobody-has-this-name",
    "-g 4294967296": "--proxy-gid: 4294967296 is not between 0 and 4294967295",
    "-m TPROXY -t -1": "--istio-inbound-tproxy-mark: -1 is not between",
    "-c 'eth0 -j ACCEPT'": "--istio-exclude-interfaces: 'eth0 -j ACCEPT' is not an interface name",
    "-k a-name-that-is-too-long": "--kube-virt-interfaces: 'a-name-that-is-too-long' is not an interface name",
}
TAKEN_AWAY = (
    "*raw\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\n:ISTIO_OUTPUT - [0:0]\n:ISTIO_OLD - [0:0]\n:OTHER - [0:0]\n"
    '-A OUTPUT -p tcp -j ISTIO_OUTPUT\n-A OUTPUT -m comment --comment "-j ISTIO_OUTPUT" -j OTHER\n-A ISTIO_OUTPUT -j ISTIO_OLD\nCOMMIT\n'
)


def chains(argv: str, environ: Mapping[str, str] = {}, family: Family = Family.V4) -> Sequence[CaptureChain]:
    loaded = load_sections(CaptureSettings(), shlex.split(argv), environ)
    assert loaded.warnings == []
    return build_pod_chains(parse_capture_config(loaded.settings, lambda: ["1.1.1.1", "fd00::35"]), family)


def changed(argv: str) -> str:
    """The flags of INJECTED with others in their place."""
    words, given = shlex.split(INJECTED), shlex.split(argv)
    kept = [
        word for flag, value in zip(words[::2], words[1::2], strict=True) if flag not in given for word in (flag, value)
    ]
    return shlex.join([*kept, *given])


def test_the_rules_of_a_pod_without_annotations() -> None:
    assert build_restore_input(chains(INJECTED), "") == WHOLE


@pytest.mark.parametrize(("argv", "environ", "changes"), CHANGES)
def test_a_flag_changes_rules(argv: str, environ: dict[str, str], changes: str) -> None:
    lines = build_restore_input(chains(changed(argv), environ), "").splitlines()
    for change in changes.splitlines():
        assert (change[1:] in lines) is (change[0] == "+"), change
        assert (change[1:] in WHOLE.splitlines()) is (change[0] == "-"), change
    assert changes or lines == WHOLE.splitlines()


def test_networks_and_servers_belong_to_their_family_of_addresses() -> None:
    argv = "-i 10.0.0.0/8,fd00::/8 -x fd00:1::/32 --redirect-dns"
    old, new = (build_restore_input(chains(argv, family=family), "") for family in Family)
    assert "fd00" not in old
    assert "::1/128" not in old
    assert not [words for words in ("10.0.0.0", "1.1.1.1", "127.0.0") if words in new]
    for words in ("-d fd00::/8 ", "-d fd00:1::/32 ", "-d fd00::35/128 ", "-s ::6/128 ", "! -d ::1/128 "):
        assert words in new


def test_rules_of_before_are_taken_away_and_those_of_others_stay() -> None:
    assert build_restore_input((), TAKEN_AWAY) == (
        "*nat\n-D OUTPUT -p tcp -j ISTIO_OUTPUT\n-F ISTIO_OUTPUT\n-F ISTIO_OLD\n-X ISTIO_OUTPUT\n-X ISTIO_OLD\nCOMMIT\n"
    )
    lines = build_restore_input(chains(INJECTED), TAKEN_AWAY).splitlines()
    assert lines.index("-D OUTPUT -p tcp -j ISTIO_OUTPUT") < lines.index("-A OUTPUT -j ISTIO_OUTPUT")
    assert [line for line in lines if "ISTIO_OLD" in line] == ["-F ISTIO_OLD", "-X ISTIO_OLD"]
    assert build_restore_input((), "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n") == ""


def test_nftables_has_the_same_rules_in_a_table_of_its_own() -> None:
    text = build_script({Family.V4: chains(f"{INJECTED} --redirect-dns --capture-all-dns -m TPROXY -c net+")})
    for line in (
        "table ip istio-proxy",
        "delete table ip istio-proxy",
        "delete table ip6 istio-proxy",
        "type nat hook output priority -100; policy accept;",
        "type route hook output priority -150; policy accept;",
        "type filter hook prerouting priority -300; policy accept;",
        'oifname "net*" return',
        "meta l4proto udp udp dport 53 ct zone set 2",
        'meta l4proto tcp oifname "lo" ip daddr != 127.0.0.1/32 tcp dport != { 53, 15008 } meta skuid 1337 jump nat_ISTIO_IN_REDIRECT',
        "meta l4proto tcp ip daddr != 127.0.0.1/32 tproxy to :15006 meta mark set 1337 accept",
        "meta l4proto tcp redirect to :15001",
        "meta l4proto tcp ct state related,established jump mangle_ISTIO_DIVERT",
        "meta l4proto tcp ct mark 1337 meta mark set ct mark",
    ):
        assert line in [found.strip() for found in text.splitlines()], line


@pytest.mark.parametrize("argv", REFUSED)
def test_what_makes_no_sense_is_refused_by_the_flag_s_name(argv: str) -> None:
    with pytest.raises(FlagError, match=f"invalid argument for {REFUSED[argv]}"):
        chains(argv)


def test_groups_are_those_that_are_captured_or_those_that_are_not() -> None:
    with pytest.raises(FlagError, match="not both"):
        chains("", {"ISTIO_OUTBOUND_OWNER_GROUPS": "1", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "2"})
    with pytest.raises(FlagError, match="has 65 groups; at most 64 are allowed"):
        chains("", {"ISTIO_OUTBOUND_OWNER_GROUPS": ",".join(map(str, range(65)))})


def test_the_proxy_is_the_user_of_a_name_where_no_number_is_given() -> None:
    assert "--uid-owner 0 " in build_restore_input(chains("", {"ENVOY_USER": "root"}), "")
    assert "--uid-owner 1337 " in build_restore_input(chains("", {"ENVOY_USER": "nobody-has-this-name"}), "")


@pytest.mark.parametrize(
    ("addresses", "dual_stack", "expected"),
    [
        (["10.0.0.1", "fd00::1"], False, [4]),
        (["10.0.0.1", "fd00::1"], True, [4, 6]),
        (["10.0.0.1"], True, [4]),
        (["fd00::1", "10.0.0.1"], False, [4, 6]),
        ([], False, [4]),
    ],
)
def test_ipv6_is_captured_where_the_pod_has_it(addresses: list[str], dual_stack: bool, expected: list[int]) -> None:
    found = network.captured_families([ipaddress.ip_address(each) for each in addresses], dual_stack)
    assert [int(family) for family in found] == expected


def test_name_servers_are_those_of_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(
        "# nameserver 9.9.9.9\nsearch a b\nnameserver 1.1.1.1\nnameserver fe80::1%eth0\nnameserver\noptions ndots:5\n"
    )
    assert network.read_name_servers(path) == ["1.1.1.1", "fe80::1"]


def fake_iptables(folder: pathlib.Path, saved: str, status: int = 0) -> None:
    """Programs of iptables that have some rules and keep what they are given."""
    for name in ("iptables", "ip6tables"):
        (folder / f"{name}-saved").write_text(saved)
        programs = {
            "save": f"cat {folder}/{name}-saved",
            "restore": f"echo $* >{folder}/{name}-got; cat >>{folder}/{name}-got; exit {status}",
        }
        for what, does in programs.items():
            path = folder / f"{name}-{what}"
            path.write_text(f"#!/bin/sh\n{does}\n")
            path.chmod(0o755)


def test_iptables_is_given_all_rules_of_a_family_at_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_iptables(tmp_path, TAKEN_AWAY)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    restore.apply({Family.V4: chains(INJECTED)})
    assert (tmp_path / "iptables-got").read_text() == "--noflush --wait\n" + build_restore_input(
        chains(INJECTED), TAKEN_AWAY
    )
    assert (tmp_path / "ip6tables-got").read_text() == "--noflush --wait\n" + build_restore_input((), TAKEN_AWAY)


def test_what_iptables_refuses_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_iptables(tmp_path, "", status=3)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(RulesError, match="iptables-restore: exit status 3"):
        restore.apply({Family.V4: chains(INJECTED)})


def test_commands_say_what_is_wrong_and_how_they_are_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["istio-iptables", "-b", "x"]) == 1
    assert capsys.readouterr().err == "Error: invalid argument for --istio-inbound-ports: 'x' is not a port\n"
    assert main(["istio-clean-iptables", "--help"]) == 0
    assert "--istio-inbound-interception-mode, -m TEXT" in capsys.readouterr().out
