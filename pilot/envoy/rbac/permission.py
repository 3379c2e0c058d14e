"""Builds permissions: what is asked for, and of which port and address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from envoy.config.core.v3 import extension_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.path.match.uri_template.v3 import uri_template_match_pb2
from envoy.type.matcher.v3 import metadata_pb2, path_pb2

from pilot.config.security.authorization_policy import Condition, Operation
from pilot.envoy.rbac.rule_field import Build, RbacField, build_fields, each, unsayable
from pilot.envoy.rbac.string_matchers import build_header, build_item, build_text, build_text_value, build_value
from pilot.envoy.well_known_types import build_cidr, pack
from pilot.lib.path_template import find_template_fault, is_template, to_envoy

Permission = rbac_pb2.Permission
ANYTHING, NOTHING = Permission(any=True), Permission(not_rule=Permission(any=True))
METADATA_KEY = "experimental."


def build_permission(
    operation: Operation | None, when: Iterable[Condition], tcp: bool, allows: bool
) -> rbac_pb2.Permission | None:
    """Returns the permission of one operation under the conditions that are about the request's end; None for one that cannot be said whole
    (`allows`, as in `build_fields`)."""
    fields = [*_operation_fields(operation or Operation(), tcp), *(_condition_field(condition) for condition in when)]
    found = build_fields(fields, lambda m: Permission(not_rule=m), allows)
    return None if found is None else Permission(and_rules=Permission.Set(rules=found or [ANYTHING]))


def is_permission(key: str) -> bool:
    """Returns whether a condition on an attribute is part of permissions."""
    return key in _CONDITIONS or key.startswith(f"{METADATA_KEY}envoy.filters.")


def _operation_fields(operation: Operation, tcp: bool) -> Iterator[RbacField[rbac_pb2.Permission]]:
    def http(build: Build[rbac_pb2.Permission]) -> Build[rbac_pb2.Permission]:
        return unsayable if tcp else build

    yield RbacField(operation.hosts, operation.not_hosts, http(_each(_host)))
    yield RbacField(operation.methods, operation.not_methods, http(_each(_method)))
    yield RbacField(operation.paths, operation.not_paths, http(_each(_path)))
    yield RbacField(operation.ports, operation.not_ports, _each(_port))


def _condition_field(condition: Condition) -> RbacField[rbac_pb2.Permission]:
    one = _CONDITIONS.get(condition.key)
    build = _each(one) if one is not None else lambda values: _metadata(condition.key, values)
    return RbacField(condition.values, condition.not_values, build)


def _each(one: Callable[[str], rbac_pb2.Permission | None]) -> Build[rbac_pb2.Permission]:
    return each(one, lambda found: Permission(or_rules=Permission.Set(rules=found)))


def _host(value: str) -> rbac_pb2.Permission:
    """Returns the permission of a host, whatever case it is written in."""
    return Permission(header=build_header(":authority", value, ignore_case=True))


def _method(value: str) -> rbac_pb2.Permission:
    return Permission(header=build_header(":method", value))


def _path(value: str) -> rbac_pb2.Permission | None:
    """Returns the permission of a path without its query; None for a template that Envoy does not take."""
    if not is_template(value):
        return Permission(url_path=path_pb2.PathMatcher(path=build_text(value)))
    if find_template_fault(value):
        return None
    config = pack(uri_template_match_pb2.UriTemplateMatchConfig(path_template=to_envoy(value)))
    return Permission(uri_template=extension_pb2.TypedExtensionConfig(name="uri-template", typed_config=config))


def _port(value: str) -> rbac_pb2.Permission | None:
    right = value.isascii() and value.isdecimal() and int(value) <= 65535
    return Permission(destination_port=int(value)) if right else None


def _address(value: str) -> rbac_pb2.Permission | None:
    cidr = build_cidr(value)
    return Permission(destination_ip=cidr) if cidr is not None else None


def _server_name(value: str) -> rbac_pb2.Permission:
    return Permission(requested_server_name=build_text(value))


_CONDITIONS = {"destination.ip": _address, "destination.port": _port, "connection.sni": _server_name}


def _metadata(key: str, values: Sequence[str]) -> rbac_pb2.Permission | None:
    """Returns the permission of what a filter of Envoy's has left in its metadata: `experimental.envoy.filters.NAME[KEY]`; a value in
    brackets is looked for in a list."""
    name, bracket, entry = key.removeprefix(METADATA_KEY).removesuffix("]").partition("[")
    if not bracket or not entry or not values:
        return None
    matchers = [
        build_item(build_text_value(v.strip("[]"))) if v.startswith("[") and v.endswith("]") else build_text_value(v)
        for v in values
    ]
    path = [metadata_pb2.MetadataMatcher.PathSegment(key=entry)]
    return Permission(metadata=metadata_pb2.MetadataMatcher(filter=name, path=path, value=build_value(matchers)))
