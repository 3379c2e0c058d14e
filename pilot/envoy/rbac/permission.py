"""Builds permissions, which match the operation and the destination's port and address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from envoy.config.core.v3 import extension_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.path.match.uri_template.v3 import uri_template_match_pb2
from envoy.type.matcher.v3 import metadata_pb2, path_pb2

from pilot.config.security.authorization_policy import Condition, Operation
from pilot.envoy.rbac.rule_field import Build, RbacField, build_fields, each, inexpressible
from pilot.envoy.rbac.string_matchers import (
    build_any_value,
    build_header,
    build_list_value,
    build_text,
    build_text_value,
)
from pilot.envoy.well_known_types import build_cidr, pack
from pilot.lib.path_template import find_template_fault, is_template, to_envoy

Permission = rbac_pb2.Permission
ANYTHING, NOTHING = Permission(any=True), Permission(not_rule=Permission(any=True))
METADATA_KEY = "experimental."


def build_permission(
    operation: Operation | None, when: Iterable[Condition], tcp: bool, allows: bool
) -> rbac_pb2.Permission | None:
    """Return the permission for one operation with its conditions.

    See `build_fields` for conditions that cannot be expressed.
    """
    fields = [*_operation_fields(operation or Operation(), tcp), *(_condition_field(condition) for condition in when)]
    permissions = build_fields(fields, lambda m: Permission(not_rule=m), allows)
    return None if permissions is None else Permission(and_rules=Permission.Set(rules=permissions or [ANYTHING]))


def is_permission(key: str) -> bool:
    """Return whether a condition with this key is part of the permissions rather than of the principals."""
    return key in _CONDITIONS or key.startswith(f"{METADATA_KEY}envoy.filters.")


def _operation_fields(operation: Operation, tcp: bool) -> Iterator[RbacField[rbac_pb2.Permission]]:
    def http(build: Build[rbac_pb2.Permission]) -> Build[rbac_pb2.Permission]:
        return inexpressible if tcp else build

    yield RbacField(operation.hosts, operation.not_hosts, http(_each(_host)))
    yield RbacField(operation.methods, operation.not_methods, http(_each(_method)))
    yield RbacField(operation.paths, operation.not_paths, http(_each(_path)))
    yield RbacField(operation.ports, operation.not_ports, _each(_port))


def _condition_field(condition: Condition) -> RbacField[rbac_pb2.Permission]:
    build_one = _CONDITIONS.get(condition.key)
    build = _each(build_one) if build_one is not None else lambda values: _metadata(condition.key, values)
    return RbacField(condition.values, condition.not_values, build)


def _each(build_one: Callable[[str], rbac_pb2.Permission | None]) -> Build[rbac_pb2.Permission]:
    return each(build_one, lambda permissions: Permission(or_rules=Permission.Set(rules=permissions)))


def _host(value: str) -> rbac_pb2.Permission:
    """Return the permission for a host. Case is ignored."""
    return Permission(header=build_header(":authority", value, ignore_case=True))


def _method(value: str) -> rbac_pb2.Permission:
    return Permission(header=build_header(":method", value))


def _path(value: str) -> rbac_pb2.Permission | None:
    """Return the permission for a path, ignoring its query. Return None for a template that Envoy does not accept."""
    if not is_template(value):
        return Permission(url_path=path_pb2.PathMatcher(path=build_text(value)))
    if find_template_fault(value):
        return None
    config = pack(uri_template_match_pb2.UriTemplateMatchConfig(path_template=to_envoy(value)))
    return Permission(uri_template=extension_pb2.TypedExtensionConfig(name="uri-template", typed_config=config))


def _port(value: str) -> rbac_pb2.Permission | None:
    is_valid = value.isascii() and value.isdecimal() and int(value) <= 65535
    return Permission(destination_port=int(value)) if is_valid else None


def _address(value: str) -> rbac_pb2.Permission | None:
    cidr = build_cidr(value)
    return Permission(destination_ip=cidr) if cidr is not None else None


def _server_name(value: str) -> rbac_pb2.Permission:
    return Permission(requested_server_name=build_text(value))


_CONDITIONS = {"destination.ip": _address, "destination.port": _port, "connection.sni": _server_name}


def _metadata(key: str, values: Sequence[str]) -> rbac_pb2.Permission | None:
    """Return the permission for dynamic metadata of an Envoy filter. The key has the form
    `experimental.envoy.filters.NAME[KEY]`.

    A value in brackets is matched against the items of a list.
    """
    name, bracket, entry = key.removeprefix(METADATA_KEY).removesuffix("]").partition("[")
    if not bracket or not entry or not values:
        return None
    matchers = [
        build_list_value(build_text_value(v.strip("[]")))
        if v.startswith("[") and v.endswith("]")
        else build_text_value(v)
        for v in values
    ]
    path = [metadata_pb2.MetadataMatcher.PathSegment(key=entry)]
    return Permission(metadata=metadata_pb2.MetadataMatcher(filter=name, path=path, value=build_any_value(matchers)))
