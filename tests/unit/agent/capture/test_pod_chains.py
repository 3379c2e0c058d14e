"""Rules of a pod by flag, for iptables and nftables. tests/e2e/test_capture.py applies them in a kernel."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import pytest

from pilot.agent.capture.capture_config import parse_capture_config
from pilot.agent.capture.capture_rules import CaptureChain, Family
from pilot.agent.capture.capture_settings import CaptureSettings
from pilot.agent.capture.iptables_text import build_restore_input
from pilot.agent.capture.nftables_script import build_script
from pilot.agent.capture.pod_chains import build_pod_chains
from pilot.lib.flags import FlagError
from pilot.settings.parse import load_sections

INJECTED = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x '' -b * -d 15090,15021,15020"
DEFAULT_RULES = """\
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
# Lines that each flag or variable adds to (+) or removes from (-) the rules of INJECTED.
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
INVALID_FLAGS = {
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
OLD_RULES = (
    "*raw\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\n:ISTIO_OUTPUT - [0:0]\n:ISTIO_OLD - [0:0]\n:OTHER - [0:0]\n"
    '-A OUTPUT -p tcp -j ISTIO_OUTPUT\n-A OUTPUT -m comment --comment "-j ISTIO_OUTPUT" -j OTHER\n-A ISTIO_OUTPUT -j ISTIO_OLD\nCOMMIT\n'
)


def chains(argv: str, environ: Mapping[str, str] = {}, family: Family = Family.V4) -> Sequence[CaptureChain]:
    loaded = load_sections(CaptureSettings(), shlex.split(argv), environ)
    assert loaded.warnings == []
    return build_pod_chains(parse_capture_config(loaded.settings, lambda: ["1.1.1.1", "fd00::35"]), family)


def replace_flags(argv: str) -> str:
    """Return the flags of INJECTED with some replaced."""
    words, overrides = shlex.split(INJECTED), shlex.split(argv)
    words_left = [
        word
        for flag, value in zip(words[::2], words[1::2], strict=True)
        if flag not in overrides
        for word in (flag, value)
    ]
    return shlex.join([*words_left, *overrides])


def test_default_rules() -> None:
    assert build_restore_input(chains(INJECTED), "") == DEFAULT_RULES


@pytest.mark.parametrize(("argv", "environ", "changes"), CHANGES)
def test_flags_change_rules(argv: str, environ: dict[str, str], changes: str) -> None:
    lines = build_restore_input(chains(replace_flags(argv), environ), "").splitlines()
    for change in changes.splitlines():
        assert (change[1:] in lines) is (change[0] == "+"), change
        assert (change[1:] in DEFAULT_RULES.splitlines()) is (change[0] == "-"), change
    assert changes or lines == DEFAULT_RULES.splitlines()


def test_networks_and_servers_are_split_by_family() -> None:
    argv = "-i 10.0.0.0/8,fd00::/8 -x fd00:1::/32 --redirect-dns"
    ipv4, ipv6 = (build_restore_input(chains(argv, family=family), "") for family in Family)
    assert "fd00" not in ipv4
    assert "::1/128" not in ipv4
    assert not [words for words in ("10.0.0.0", "1.1.1.1", "127.0.0") if words in ipv6]
    for words in ("-d fd00::/8 ", "-d fd00:1::/32 ", "-d fd00::35/128 ", "-s ::6/128 ", "! -d ::1/128 "):
        assert words in ipv6


def test_old_rules_are_removed_and_others_stay() -> None:
    assert build_restore_input((), OLD_RULES) == (
        "*nat\n-D OUTPUT -p tcp -j ISTIO_OUTPUT\n-F ISTIO_OUTPUT\n-F ISTIO_OLD\n-X ISTIO_OUTPUT\n-X ISTIO_OLD\nCOMMIT\n"
    )
    lines = build_restore_input(chains(INJECTED), OLD_RULES).splitlines()
    assert lines.index("-D OUTPUT -p tcp -j ISTIO_OUTPUT") < lines.index("-A OUTPUT -j ISTIO_OUTPUT")
    assert [line for line in lines if "ISTIO_OLD" in line] == ["-F ISTIO_OLD", "-X ISTIO_OLD"]
    assert build_restore_input((), "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n") == ""


def test_nftables_script() -> None:
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
        assert line in [row.strip() for row in text.splitlines()], line


@pytest.mark.parametrize("argv", INVALID_FLAGS)
def test_invalid_value_error_names_the_flag(argv: str) -> None:
    with pytest.raises(FlagError, match=f"invalid argument for {INVALID_FLAGS[argv]}"):
        chains(argv)


def test_owner_groups_are_validated() -> None:
    with pytest.raises(FlagError, match="not both"):
        chains("", {"ISTIO_OUTBOUND_OWNER_GROUPS": "1", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "2"})
    with pytest.raises(FlagError, match="has 65 groups; at most 64 are allowed"):
        chains("", {"ISTIO_OUTBOUND_OWNER_GROUPS": ",".join(map(str, range(65)))})


def test_proxy_uid_falls_back_to_the_user_name() -> None:
    assert "--uid-owner 0 " in build_restore_input(chains("", {"ENVOY_USER": "root"}), "")
    assert "--uid-owner 1337 " in build_restore_input(chains("", {"ENVOY_USER": "nobody-has-this-name"}), "")
