"""Principals that match the claims of a JSON web token, which the jwt_authn filter stores in dynamic metadata."""

from __future__ import annotations

from collections.abc import Sequence

from envoy.config.rbac.v3 import rbac_pb2
from envoy.type.matcher.v3 import metadata_pb2, string_pb2, value_pb2

from pilot.envoy.names import JWT_AUTHN_FILTER, JWT_PAYLOAD
from pilot.envoy.rbac.string_matchers import ANY, PRESENT, build_any_value, build_list_value, build_text_value

Principal, StringMatcher = rbac_pb2.Principal, string_pb2.StringMatcher


def any_of(principals: Sequence[rbac_pb2.Principal]) -> rbac_pb2.Principal:
    """Return a principal that matches if any of the given principals does."""
    return Principal(or_ids=Principal.Set(ids=principals))


def build_claim(path: Sequence[str], values: Sequence[str]) -> rbac_pb2.Principal:
    """Return the principal for a claim with one of the values. The claim is a string or a list of strings.

    `path` has the names of the enclosing claims, followed by the claim's own name.
    """
    value = build_any_value([build_text_value(v) for v in values])
    return _metadata(
        path, value_pb2.ValueMatcher(or_match=value_pb2.OrMatcher(value_matchers=[build_list_value(value), value]))
    )


def build_request_principals(values: Sequence[str]) -> rbac_pb2.Principal:
    """Return the principal for any of the values `ISSUER/SUBJECT`. Either part, but not both, may have a wildcard."""
    principals = [_request_principal(value) for value in values]
    return principals[0] if len(principals) == 1 else any_of(principals)


def _request_principal(value: str) -> rbac_pb2.Principal:
    issuer, subject = _issuer_and_subject(value)
    claims = [
        _metadata((name,), value_pb2.ValueMatcher(string_match=m)) for name, m in (("iss", issuer), ("sub", subject))
    ]
    return Principal(and_ids=Principal.Set(ids=claims))


def _issuer_and_subject(value: str) -> tuple[string_pb2.StringMatcher, string_pb2.StringMatcher]:
    """Return the matchers for the issuer and the subject.

    The last slash separates them, because issuers are URLs. Only one of them may have a wildcard.
    """
    issuer, slash, subject = value.rpartition("/")
    if not slash:
        issuer, subject = value, ""
    if value == ANY:
        return PRESENT, PRESENT
    if value.startswith(ANY):
        if not slash:
            return PRESENT, StringMatcher(suffix=value[1:])
        return PRESENT if issuer == ANY else StringMatcher(suffix=issuer[1:]), StringMatcher(exact=subject)
    if value.endswith(ANY):
        if not slash:
            return StringMatcher(prefix=value[:-1]), PRESENT
        return StringMatcher(exact=issuer), PRESENT if subject == ANY else StringMatcher(prefix=subject[:-1])
    return StringMatcher(exact=issuer), StringMatcher(exact=subject)


def _metadata(path: Sequence[str], value: value_pb2.ValueMatcher) -> rbac_pb2.Principal:
    keys = [metadata_pb2.MetadataMatcher.PathSegment(key=key) for key in (JWT_PAYLOAD, *path)]
    return Principal(metadata=metadata_pb2.MetadataMatcher(filter=JWT_AUTHN_FILTER, path=keys, value=value))
