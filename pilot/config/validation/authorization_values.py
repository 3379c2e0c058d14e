"""Validation of the values in AuthorizationPolicies' sources, operations and conditions."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence

from pilot.config.problem import Problems, below, error, warning
from pilot.config.security.authorization_policy import Condition, Operation, Source
from pilot.lib.path_template import find_template_fault, is_template
from pilot.lib.regex import MAX_LENGTH
from pilot.lib.suggestion import LONGEST, did_you_mean
from pilot.lib.text import cut

Check = Callable[[str], str]
"""A function that returns what is wrong with a value, or "" if it is valid."""
_MOST_ACCOUNTS, _LONGEST_ACCOUNT = 16, 320
HTTP_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"})
_PRINCIPALS = ("principals", "not_principals", "source.principal")
_REQUEST_PRINCIPALS = ("request_principals", "not_request_principals", "request.auth.principal")
_WITH_INNER_WILDCARDS = (
    *("namespaces", "not_namespaces", "source.namespace"),
    *_REQUEST_PRINCIPALS,
)
_METHODS, _PATHS, _HOSTS = ("methods", "not_methods"), ("paths", "not_paths"), ("hosts", "not_hosts")
# Parts of regular expressions that are no parts of paths or hosts. A host may end with .* and mean all domains.
_PART = r"\[(?:\^|\w-\w)|\\|\A\^|\$\Z"
_PATH_EXPRESSION = re.compile(rf"\.[*+]|{_PART}", re.ASCII)
_HOST_EXPRESSION = re.compile(rf"\A\.[*+]|{_PART}", re.ASCII)
_ANY_SEGMENT = re.compile(r"/(?:\.[*+]|\[\^/\][*+]|\\[dw][*+]|\[\w-\w\][*+]|\*)(?=/|\Z)", re.ASCII)
_LITERAL = re.compile(r"\*?[^*\\^$\[\]()|?+]+\*?")
# Limits that Istio lacks: a list becomes one matcher, against which every request is evaluated.
MOST_VALUES, LONGEST_VALUE = 1024, MAX_LENGTH


def _any(_: str) -> str:
    return ""


def _address(value: str) -> str:
    address, slash, length = value.partition("/")
    try:
        ipaddress.ip_interface(value)
    except ValueError:
        return f"{value!r} is not an IP address or CIDR range{_longest_prefix(address, length)}"
    return "" if not slash or (length.isascii() and length.isdecimal()) else f"{value!r} is not a CIDR range"


def _longest_prefix(address: str, length: str) -> str:
    """Return the longest prefix of an address whose prefix length is not valid, or "" if the address is not."""
    try:
        bits = ipaddress.ip_address(address).max_prefixlen
    except ValueError:
        return ""
    return f": the longest prefix is /{bits}" if length.isdecimal() else ""


def _port(value: str) -> str:
    return "" if value.isascii() and value.isdecimal() and int(value) <= 65535 else f"{value!r} is not a valid port"


def _wildcard(value: str) -> str:
    if value.count("*") > 1 or ("*" in value and not (value.startswith("*") or value.endswith("*"))):
        return f"{value!r}: only one wildcard is allowed, at the start or the end"
    return ""


def _trust_domain(value: str) -> str:
    return f"{value!r}: a trust domain cannot contain /" if "/" in value else _wildcard(value)


def _account(value: str) -> str:
    parts = value.split("/")
    if "*" in value:
        return f"{value!r}: wildcards are not supported in service accounts"
    if len(parts) > 2 or not all(parts):
        return f"{value!r}: expected account or namespace/account"
    return "" if len(value) <= _LONGEST_ACCOUNT else f"must be at most {_LONGEST_ACCOUNT} characters"


_BY_FIELD: Mapping[str, Check] = {
    "service_accounts": _account,
    "trust_domains": _trust_domain,
    "ip_blocks": _address,
    "remote_ip_blocks": _address,
    "ports": _port,
    "paths": find_template_fault,
}
VALUES: Mapping[str, Check] = {
    field: _BY_FIELD.get(field.removeprefix("not_"), _any)
    for struct in (Source, Operation)
    for field in struct.__struct_fields__
}
_BY_KEY: Mapping[str, Check] = {
    "source.ip": _address,
    "remote.ip": _address,
    "source.namespace": _any,
    "source.serviceAccount": _account,
    "source.principal": _any,
    "source.trustDomain": _wildcard,
    "request.auth.principal": _any,
    "request.auth.audiences": _any,
    "request.auth.presenter": _any,
    "destination.ip": _address,
    "destination.port": _port,
    "connection.sni": _any,
}
_WITHOUT_WILDCARDS = (_address, _port, _account, _trust_domain, _wildcard)
_WITH_NAME = ("request.headers", "request.auth.claims", "experimental.envoy.filters.")


def _find_mismatch(field: str, value: str) -> str:
    """Return why a valid value matches nothing that its author may mean, or ""."""
    if field in _PRINCIPALS and value.startswith("spiffe://"):
        return f"{value!r} matches no principal; write {value.removeprefix('spiffe://')}"
    if field in _METHODS and value.isascii() and value.upper() in HTTP_METHODS and value != value.upper():
        return f"{value!r} matches no request, because methods are in upper case; write {value.upper()}"
    if field in _REQUEST_PRINCIPALS and not _has_subject(value):
        issuer = value.rstrip("/")
        return f"{value!r} matches no request, because a request principal is ISSUER/SUBJECT; write {issuer}/*"
    if is_template(value) or field in _WITH_INNER_WILDCARDS:
        return ""
    is_path = field in _PATHS
    if (is_path and _PATH_EXPRESSION.search(value)) or (field in _HOSTS and _HOST_EXPRESSION.search(value)):
        return (
            f"{value!r} is matched as text and not as a regular expression, as only * at the start or the end is a "
            f"wildcard; {_instead_of_expression(value, is_path)}"
        )
    if "*" in (value[1:] if value[0] == "*" else value.removesuffix("*")):
        instead = f"; write {_template(value) or _TEMPLATES}" if is_path else ""
        return f"{value!r} matches only text with a *, because * is a wildcard only at the start or the end{instead}"
    return ""


_TEMPLATES = "{*} for a segment of a path, and {**} for the rest"


def _template(value: str) -> str:
    """Return the template that matches what a path with wildcards or expressions for segments means, or ""."""
    text = _ANY_SEGMENT.sub("/{*}", value)
    rest = re.search(r"/(?:\.?\*)\Z", value)
    text = f"{text.removesuffix('{*}')}{{**}}" if rest is not None else text
    return text if is_template(text) and not find_template_fault(text) and "*" not in _without_wildcards(text) else ""


def _without_wildcards(template: str) -> str:
    return template.replace("{**}", "").replace("{*}", "")


def _instead_of_expression(value: str, is_path: bool) -> str:
    """Return what to write instead of a regular expression."""
    text = value.removeprefix("^")
    is_open = text != value and not text.endswith("$")
    text = f"{text}*" if is_open else text.removesuffix("$")
    for escaped in "./-":
        text = text.replace(f"\\{escaped}", escaped)
    template = _template(text) if is_path else ""
    for any_text in (".*", ".+"):
        text = f"*{text.removeprefix(any_text)}" if text.startswith(any_text) else text
        text = f"{text.removesuffix(any_text)}*" if text.endswith(any_text) else text
    if _LITERAL.fullmatch(text):
        return f"write {text}"
    return f"write {template or _TEMPLATES}" if is_path else "list the hosts"


def _has_subject(value: str) -> bool:
    """Return whether a request principal has, or may have, a subject after the URL or the name of the issuer."""
    subject = value.partition("://")[2] or value
    return "*" in value or bool(subject.partition("/")[2])


def check_values(values: Sequence[str], check: Check, field: str = "") -> Problems:
    """Yield the problems of a list of values of a field, or of a key of a condition."""
    most = _MOST_ACCOUNTS if check is _account else MOST_VALUES
    if len(values) > most:
        yield error("too-many", "", f"{len(values)} values; at most {most} are allowed")
        return
    for index, value in enumerate(values):
        if not value:
            yield error("missing-field", f"[{index}]", "a value is required")
        elif len(value) > LONGEST_VALUE:
            yield error("too-long", f"[{index}]", f"must be at most {LONGEST_VALUE} characters")
        elif fault := check(value):
            yield error("bad-value", f"[{index}]", fault)
        elif check not in _WITHOUT_WILDCARDS and (fault := _find_mismatch(field, value)):
            yield warning("never-matches", f"[{index}]", fault)


def check_condition(condition: Condition) -> Problems:
    """Yield the problems of a condition."""
    key = condition.key
    check = _any if key.startswith(_WITH_NAME) else _BY_KEY.get(key)
    if not key:
        yield error("missing-field", "key", "a key is required")
    elif check is None:
        yield error("bad-key", "key", f"{key!r} is not a known attribute{_suggest_key(key)}")
    elif key.startswith(_WITH_NAME) and not _has_name(key):
        attribute = key.partition("[")[0]
        example = attribute if attribute in _WITH_NAME else _WITH_NAME[0]
        yield error("bad-key", "key", f"{key!r}: expected a name in brackets, as in {example}[NAME]")
    elif not condition.values and not condition.not_values:
        yield error("missing-field", "values", "values or notValues is required")
    else:
        yield from below("values", check_values(condition.values, check, key))
        yield from below("notValues", check_values(condition.not_values, check, key))


def _suggest_key(key: str) -> str:
    """Return a question that suggests the known attribute most similar to an unknown one, with the same name in
    brackets, or the list of all attributes."""
    attribute, bracket, name = key.partition("[")
    keys = [f"{one}[" for one in _WITH_NAME[:2]] if bracket else [*_BY_KEY, *(f"{one}[NAME]" for one in _WITH_NAME[:2])]
    suggestion = did_you_mean(attribute + bracket, keys)
    if suggestion and bracket:
        suggestion = f"{suggestion.removesuffix('?')}{cut(name, LONGEST)}?"
    return suggestion or f"; attributes are {', '.join([*_BY_KEY, *(f'{one}[NAME]' for one in _WITH_NAME[:2])])}"


def _has_name(key: str) -> bool:
    return key.endswith("]") and 0 < key.find("[") < len(key) - 2
