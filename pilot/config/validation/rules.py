"""Validation rules that several kinds share.

Each function returns the problems of one value. `path` is the path of the value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from pilot.config.problem import Problem, error, warning
from pilot.config.protocol import Protocol, parse_protocol
from pilot.lib.addresses import is_ip
from pilot.lib.duration import Duration
from pilot.lib.hosts import is_server_name
from pilot.lib.regex import find_fault

MILLISECOND = 1_000_000
UNIX = "unix://"
_UNIX_PATH = 107
_LONGEST_NAME = 255

_LABEL = "[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?"
_DNS_LABEL = re.compile(_LABEL, re.ASCII)
_SHORT_LABEL = "[a-zA-Z0-9](?:[-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
_PLAIN_NAME = re.compile(rf"(?:{_SHORT_LABEL}\.)*(?![0-9]+\Z){_SHORT_LABEL}", re.ASCII)
"""Matches most hostnames that have neither wildcards nor a trailing dot."""
_SCOPED_HOST = re.compile(
    rf"(?:(?:[*.]|{_SHORT_LABEL})/)?(?:\*|(?:\*|{_SHORT_LABEL})\.(?:{_SHORT_LABEL}\.)*(?![0-9]+\Z){_SHORT_LABEL})",
    re.ASCII,
)
"""Matches most valid hosts of Gateways and, if they have a namespace, of Sidecars."""
_WILDCARD_LABEL = re.compile(rf"\*|(?:\*-?)?{_LABEL}", re.ASCII)
_QUALIFIED = "(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_KEY = re.compile(rf"(?:(?P<prefix>{_LABEL}(?:\.{_LABEL})*)/)?(?P<name>{_QUALIFIED})", re.ASCII)
_LABEL_VALUE = re.compile(f"(?:{_QUALIFIED})?", re.ASCII)

Findings = Iterable[Problem]


def is_dns_label(text: str) -> bool:
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Return whether a string is a number of at most 20 digits.

    The limit exists because Python cannot convert strings of thousands of digits.
    """
    return len(text) <= 20 and text.isascii() and text.isdecimal()


def check_port(path: str, number: int) -> Findings:
    return (
        ()
        if 1 <= number <= 65535
        else (error("bad-port", path, f"{number} is not a valid port: must be between 1 and 65535"),)
    )


def check_port_name(path: str, name: str) -> Findings:
    return (
        ()
        if is_dns_label(name)
        else (error("bad-port-name", path, f"{name!r}: must be 1 to 63 letters, digits and hyphens"),)
    )


PROTOCOLS = "HTTP, HTTP2, HTTPS, GRPC, GRPC-Web, TCP, TLS, UDP, Mongo, Redis or MySQL"


def check_protocol(path: str, protocol: str) -> Findings:
    if not protocol or parse_protocol(protocol) is not Protocol.UNSUPPORTED:
        return ()
    return (
        error(
            "bad-protocol",
            path,
            f"unknown protocol {protocol!r}: expected {PROTOCOLS}",
        ),
    )


def check_duration(path: str, duration: Duration | None) -> Findings:
    """Return an error unless a duration is None, or a whole number of milliseconds that is at least 1 ms."""
    if duration is None or (duration >= MILLISECOND and duration % MILLISECOND == 0):
        return ()
    return (error("bad-duration", path, f"{duration}: must be whole milliseconds, at least 1ms"),)


def check_not_negative(path: str, number: int) -> Findings:
    return () if number >= 0 else (error("out-of-range", path, f"{number}: must not be negative"),)


def check_percent(path: str, percent: float | None, highest: int = 100) -> Findings:
    """Return an error unless a percentage is None or between 0 and `highest`."""
    if percent is None or 0 <= percent <= highest:
        return ()
    return (error("bad-percentage", path, f"{percent}: must be between 0 and {highest}"),)


def check_name(path: str, name: str) -> Findings:
    """Return an error unless a name is a full domain name without wildcards. It may have a trailing dot."""
    return _check_length(path, name) or _check_labels_of(path, name, name)


def check_host(path: str, host: str) -> Findings:
    """Return an error unless a host is a domain name. Its first label may be a wildcard or start with one."""
    if len(host) <= _LONGEST_NAME and _PLAIN_NAME.fullmatch(host):
        return ()
    if problems := _check_length(path, host) or _check_not_url(path, host):
        return problems
    if "{{" in host:
        return (error("bad-host", path, f"{host!r} looks like a Helm template: render it first"),)
    first, dot, rest = host.partition(".")
    if len(first) > 63 or not _WILDCARD_LABEL.fullmatch(first):
        return (error("bad-host", path, f"{host!r} is not a domain name: invalid label {first!r}"),)
    return _check_labels_of(path, host, rest) if dot else ()


def _check_not_url(path: str, text: str) -> Findings:
    """Return an error if a string is the URL of a host, or a host with a port."""
    scheme, separator, rest = text.partition("://")
    name, colon, port = (rest if separator else text).partition("/")[0].partition(":")
    if not (separator or (colon and is_number(port))) or not _PLAIN_NAME.fullmatch(name.removeprefix("*.")):
        return ()
    what = f"a URL; write the host without {scheme}://" if separator else "a host with a port; write the host alone"
    return (error("bad-host", path, f"{text!r} is {what}: {name}"),)


def _check_length(path: str, host: str) -> Findings:
    if not host:
        return (error("bad-host", path, "a name is required"),)
    return (
        () if len(host) <= _LONGEST_NAME else (error("bad-host", path, f"must be at most {_LONGEST_NAME} characters"),)
    )


def _check_labels_of(path: str, host: str, name: str) -> Findings:
    labels = name.removesuffix(".").split(".")
    if name.rpartition(".")[2].isdecimal():
        return (error("bad-host", path, f"{host!r} is not a domain name: the last label is a number"),)
    for label in labels:
        if not is_dns_label(label):
            return (error("bad-host", path, f"{host!r} is not a domain name: invalid label {label!r}"),)
    return ()


def check_server_name(path: str, name: str) -> Findings:
    """Return a warning if a name cannot match the SNI of TLS connections."""
    if is_server_name(name):
        return ()
    return (
        warning(
            "partial-wildcard",
            path,
            f"{name!r} has no effect: in a TLS server name, a wildcard must be a whole label",
        ),
    )


def check_scoped_host(path: str, text: str, gateway: bool) -> Findings:
    """Yield an error unless a string is `namespace/host`.

    The namespaces `*` and `.` are valid. For a Sidecar, `~` is valid too. For a Gateway, the namespace may be omitted.
    """
    # An object can contain thousands of short hosts, so valid ones are checked first.
    if len(text) <= _LONGEST_NAME and (gateway or "/" in text) and _SCOPED_HOST.fullmatch(text):
        return
    if gateway and is_ip(text):
        return
    if problems := _check_not_url(path, text):
        yield from problems
        return
    namespace, slash, host = text.partition("/")
    if not slash:
        if not gateway:
            yield error("bad-host", path, f"{text!r}: expected namespace/host, such as */{text} or ./{text}")
            return
        namespace, host = "*", text
    if not namespace or not host:
        yield error("bad-host", path, f"{text!r}: namespace and host must not be empty")
        return
    plain = namespace if gateway else namespace.removeprefix("~")
    if plain not in ("*", ".") and not (plain == "" and not gateway) and not is_dns_label(plain):
        yield error("bad-namespace", path, f"{namespace!r} is not a valid namespace")
    if gateway and is_ip(host):
        return
    if host != "*" and "." not in host:
        yield error(
            "bad-host", path, f"{host!r}: short names are not allowed here; write {host}.NAMESPACE.svc.cluster.local"
        )
    yield from check_host(path, host)
    yield from check_no_partial_wildcard(path, host)


def check_no_partial_wildcard(path: str, host: str) -> Findings:
    """Return an error if a wildcard is not a whole label."""
    if "*" not in host or host == "*" or host.startswith("*."):
        return ()
    return (error("bad-host", path, f"{host!r}: a wildcard must be a whole label"),)


def check_address(path: str, address: str) -> Findings:
    return () if is_ip(address) else (error("bad-address", path, f"{address!r} is not an IP address"),)


def check_subnet(path: str, subnet: str) -> Findings:
    """Return an error unless a string is an IP address or a CIDR range."""
    address, slash, length = subnet.partition("/")
    if not slash:
        return check_address(path, subnet)
    if is_ip(address) and is_number(length) and int(length) <= (128 if ":" in address else 32):
        return ()
    return (error("bad-address", path, f"{subnet!r} is not a CIDR range"),)


def check_unix(path: str, address: str) -> Findings:
    """Return an error unless the address of a Unix socket is valid (see unix(7)).

    `address`, without `unix://`, must be an absolute path or an abstract name.
    """
    if len(address.encode()) > _UNIX_PATH:
        return (error("bad-address", path, f"must be at most {_UNIX_PATH} bytes"),)
    if address.startswith("@") or (address.startswith("/") and not address.endswith("/")):
        return ()
    return (error("bad-address", path, f"{address!r} is not an absolute file path"),)


def check_labels(path: str, labels: Mapping[str, str]) -> Findings:
    """Yield an error for each label key or value that is invalid.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
    """
    for key, value in labels.items():
        match = _LABEL_KEY.fullmatch(key)
        if match is None or len(match["name"]) > 63 or len(match["prefix"] or "") > 253:
            yield error("bad-label", f"{path}[{key}]", f"{key!r} is not a valid label key")
        if not _LABEL_VALUE.fullmatch(value):
            yield error("bad-label", f"{path}[{key}]", f"{value!r} is not a valid label value")


def check_selector(path: str, labels: Mapping[str, str] | None, field: str) -> Findings:
    """Yield the problems of a selector. `labels` is None if there is no selector, which is valid.

    A selector without labels selects all workloads, which causes a warning.
    """
    if labels is None:
        return
    for key, value in labels.items():
        if not key:
            yield error("bad-selector", f"{path}.{field}[{key}]", "a key is required")
        if "*" in key or "*" in value:
            yield error("bad-selector", f"{path}.{field}[{key}]", "wildcards are not supported in selectors")
    if not labels:
        yield warning("empty-selector", path, "a selector without labels selects all workloads in the namespace")


def check_regex(path: str, pattern: str) -> Findings:
    if not pattern:
        return (error("bad-regex", path, "a regular expression is required"),)
    fault = find_fault(pattern)
    return (error("bad-regex", path, f"{fault} (RE2 syntax){_regex_hint(pattern)}"),) if fault else ()


_GLOB = re.compile(r"\*[-\w./*]*", re.ASCII)
_LOOKAROUND = re.compile(r"\(\?<?[=!]")


def _regex_hint(pattern: str) -> str:
    """Return how to write an invalid regular expression that has the syntax of another language."""
    if _LOOKAROUND.search(pattern):
        return "; RE2 has no lookahead and no lookbehind: match the exceptions with a rule of their own before this one"
    if not pattern.startswith("*"):
        return ""
    same = pattern.replace(".", r"\.").replace("*", ".*") if _GLOB.fullmatch(pattern) and len(pattern) <= 60 else ""
    return f"; write .* for any text{f': {same}' if same else ''}"


def check_export_to(path: str, names: Collection[str], namespace: str, nobody: bool = False) -> Findings:
    """Yield the problems of an exportTo field. With `nobody`, "~" is allowed as the only value."""
    exports: set[str] = set()
    for index, name in enumerate(names):
        place = f"{path}[{index}]"
        key = namespace if name == "." else name
        if key in exports:
            yield error("duplicate-export", place, f"duplicate {name!r}")
        exports.add(key)
        if key == "~" and not nobody:
            yield error("bad-export", place, "'~' is not supported for this kind")
        elif key not in ("*", "~") and not is_dns_label(key):
            yield error("bad-export", place, f"{name!r}: expected '.', '*' or a namespace")
    for whole in ("*", "~"):
        if whole in exports and len(names) > 1:
            yield error("bad-export", path, f"{whole!r} cannot be combined with other values")
