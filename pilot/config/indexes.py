"""Index functions of tables. Each returns the buckets of the index that contain a row, given the row and its key.

A row without a bucket is not in the index.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from pilot.config.group_kind import GroupKind
from pilot.config.kubernetes.service import EXPORT_TO, FREE_PORTS
from pilot.config.networking.destination_rule import has_consistent_hash
from pilot.config.networking.workload_entry import REGISTRATION_GROUP
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.security.request_authentication import jwks_source
from pilot.lib.labels import NETWORK

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
Buckets = Iterable[Hashable]


def qualify(host: str, namespace: str, domain: str) -> str:
    """Return the full name of a host that an object in `namespace` refers to.

    A name without a dot is a service in that namespace.
    """
    return host if "." in host or host == "*" else f"{host}.{namespace}.svc.{domain}"


def namespace_of(key: ObjectKey | RegistryKey, _: Any) -> Buckets:
    return (key.namespace,)


def cluster(key: RegistryKey, _: Any) -> Buckets:
    return (key.cluster,)


def object_name(key: RegistryKey, _: Any) -> Buckets:
    """Return (namespace, name), and ("", name) for lookups in all namespaces."""
    return (key.namespace, key.name), ("", key.name)


def many_ports(key: RegistryKey, o: Object[Any]) -> Buckets:
    """Return the namespace of a Service whose ports count in the limit of the namespace."""
    return (key.namespace,) if len(o.spec.ports) > FREE_PORTS else ()


def plain_name(key: RegistryKey, _: Any) -> Buckets:
    """Return the name, for lookups in all namespaces and clusters."""
    return (key.name,)


# Services, Pods, EndpointSlices


def one_selected_label(key: RegistryKey, o: Object[Any]) -> Buckets:
    """Return (cluster, namespace, label key, label value) for the first label in a Service's sorted selector."""
    return ((key.cluster, key.namespace, *min(o.spec.selector.items())),) if o.spec.selector else ()


def is_network_gateway(_: RegistryKey, o: Object[Any]) -> Buckets:
    return (True,) if NETWORK in o.labels else ()


def has_named_target(_: RegistryKey, o: Object[Any]) -> Buckets:
    return (True,) if any(isinstance(port.target_port, str) for port in o.spec.ports) else ()


def is_external_name(_: RegistryKey, o: Object[Any]) -> Buckets:
    return (True,) if o.spec.type == "ExternalName" else ()


def has_export_to(_: RegistryKey, o: Object[Any]) -> Buckets:
    return (True,) if EXPORT_TO in o.annotations else ()


def is_registered(_: RegistryKey, o: Object[Any]) -> Buckets:
    return (True,) if REGISTRATION_GROUP in o.annotations else ()


def pod_ips(_: RegistryKey, o: Object[Any]) -> Buckets:
    return tuple(i.ip for i in o.spec.status.pod_ips) or ((o.spec.status.pod_ip,) if o.spec.status.pod_ip else ())


def slice_service(key: RegistryKey, o: Object[Any]) -> Buckets:
    """Return the ObjectKey of the Service to which an EndpointSlice belongs.

    EndpointSlices in all clusters share the bucket.
    """
    name = o.labels.get(SERVICE_NAME_LABEL)
    return (ObjectKey(key.namespace, name),) if name else ()


def is_unready_slice(_: RegistryKey, o: Object[Any]) -> Buckets:
    """Return (True,) for an EndpointSlice that has endpoints, of which none is ready and some may become ready."""
    conditions = [endpoint.conditions for endpoint in o.spec.endpoints]
    is_unready = all(one.ready is False for one in conditions) and not all(one.terminating for one in conditions)
    return (True,) if is_unready else ()


def slice_addresses(_: RegistryKey, o: Object[Any]) -> Buckets:
    return {a for e in o.spec.endpoints for a in e.addresses}


# ServiceEntries, WorkloadEntries


def entry_hosts(_: ObjectKey, o: Object[Any]) -> Buckets:
    return set(o.spec.hosts)


def entry_refs(key: ObjectKey, o: Object[Any]) -> Buckets:
    """Return (hostname, namespace) for each host of a ServiceEntry."""
    return {(host, key.namespace) for host in o.spec.hosts}


def endpoint_addresses(_: ObjectKey, o: Object[Any]) -> Buckets:
    return {e.address for e in o.spec.endpoints}


def selecting(key: ObjectKey, o: Object[Any]) -> Buckets:
    """Return the namespace of a ServiceEntry if it has a workloadSelector."""
    return (key.namespace,) if o.spec.workload_selector is not None else ()


def entry_address(_: RegistryKey, o: Object[Any]) -> Buckets:
    return (o.spec.address,)


# VirtualServices and DestinationRules, indexed by full hostname in lower case, including wildcards


def full_hosts(domain: str) -> Callable[[ObjectKey, Object[Any]], Buckets]:
    def hosts(key: ObjectKey, o: Object[Any]) -> Buckets:
        return {qualify(h, key.namespace, domain).lower() for h in o.spec.hosts}

    return hosts


def full_host(domain: str) -> Callable[[ObjectKey, Object[Any]], Buckets]:
    def host(key: ObjectKey, o: Object[Any]) -> Buckets:
        return (qualify(o.spec.host, key.namespace, domain).lower(),)

    return host


def delegates(key: ObjectKey, o: Object[Any]) -> Buckets:
    """Return the key of each VirtualService to which the routes delegate."""
    if o.origin is not None:  # only users write delegates
        return ()
    references = (rule.delegate for rule in o.spec.http if rule.delegate is not None)
    return {ObjectKey(delegate.namespace or key.namespace, delegate.name) for delegate in references}


def has_wildcard(_: ObjectKey, o: Object[Any]) -> Buckets:
    return (True,) if any(h.startswith("*") for h in o.spec.hosts) else ()


def exported_by_name(_: ObjectKey, o: Object[Any]) -> Buckets:
    """Return the namespaces listed in exportTo."""
    return set(o.spec.export_to) - {"*", "."}


def wildcard_rules(key: ObjectKey, o: Object[Any]) -> Buckets:
    """Return the namespace of a DestinationRule if its host is a wildcard."""
    return (key.namespace,) if o.spec.host.startswith("*") else ()


def hashing_wildcards(_: ObjectKey, o: Object[Any]) -> Buckets:
    """Return True for a DestinationRule if its host is a wildcard and it uses consistent hashing."""
    return (True,) if o.spec.host.startswith("*") and has_consistent_hash(o.spec) else ()


# RequestAuthentications


def key_sets(_: ObjectKey, o: Object[Any]) -> Buckets:
    """Return the JSON Web Key sets to fetch for the JWT rules of a RequestAuthentication."""
    return {source for rule in o.spec.jwt_rules if (source := jwks_source(rule)) is not None}


# Gateway API

ROUTE_BUCKETS = 128


def route_bucket(key: ObjectKey, _: Any) -> Buckets:
    """Return the bucket of a route: a number that is the same in every process."""
    return (zlib.crc32(f"{key.namespace}/{key.name}".encode()) % ROUTE_BUCKETS,)


def gateway_of_listener_set(key: ObjectKey, o: Object[Any]) -> Buckets:
    """Return the ObjectKey of the Gateway that a ListenerSet attaches to."""
    ref = o.spec.parent_ref
    return (ObjectKey(ref.namespace or key.namespace, ref.name),)


def granted_pairs(key: ObjectKey, o: Object[Any]) -> Buckets:
    """Return (source kind, source namespace, target kind, target namespace) for each pair of a source and a target in a
    ReferenceGrant."""
    return {
        (GroupKind(f.group or "", f.kind), f.namespace, GroupKind(t.group or "", t.kind), key.namespace)
        for f in o.spec.from_
        for t in o.spec.to
    }


def policy_targets(key: ObjectKey, o: Object[Any]) -> Buckets:
    """Return (namespace, kind, name) for each target of a policy."""
    return {(key.namespace, GroupKind(t.group, t.kind), t.name) for t in o.spec.target_refs}


def defaults_for_class(key: RegistryKey, o: Object[Any]) -> Buckets:
    """Return (namespace, GatewayClass) for a ConfigMap that contains defaults for deployed Gateways."""
    class_name = o.labels.get("gateway.istio.io/defaults-for-class")
    return ((key.namespace, class_name),) if class_name else ()
