"""TLS settings of listeners. The certificates that they refer to must be permitted and valid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from pilot.config.gateway_api.gateway import FrontendTLS, FrontendValidation, Gateway, Listener, ListenerTLSConfig
from pilot.config.gateway_api.reference import ObjectReference, SecretObjectReference
from pilot.config.group_kind import GroupKind
from pilot.config.key_material import Flaw
from pilot.config.kinds.kubernetes import CONFIG_MAP, SECRET
from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.object import Object
from pilot.lib.labels import NETWORK
from pilot.mesh.gateway_api.gateways import Owner
from pilot.mesh.gateway_api.reference_grants import ReferenceKey, may_refer
from pilot.mesh.model.condition import Fault
from pilot.mesh.model.credential_key import CA_SUFFIX, CONFIG_MAP_PREFIX, GATEWAY_SECRET, CredentialKey
from pilot.mesh.tables.credentials import credential
from pilot.mesh.tables.database import Mesh

TERMINATE_MODE, CIPHER_SUITES = "gateway.istio.io/tls-terminate-mode", "gateway.istio.io/tls-cipher-suites"
LISTENER_PROTOCOL, AUTO_PASSTHROUGH = "gateway.istio.io/listener-protocol", "auto-passthrough"
GATEWAY_PORT, EAST_WEST_PORT = "networking.istio.io/gatewayPort", 15443
_MAX_CERTIFICATES = 2


class ListenerTLS(NamedTuple):
    """The TLS settings of a server. `settings` is None if the server does not use TLS.

    `fault` is the reason why the settings differ from those of the listener.
    """

    settings: ServerTLSSettings | None
    fault: Fault | None = None


def listener_tls(db: Mesh, owner: Owner, gateway: Object[Gateway], listener: Listener, port: int) -> ListenerTLS:
    """Return the TLS settings of a listener. Not memoised."""
    tls = listener.tls
    if tls is None:
        return ListenerTLS(None)
    if tls.mode == "Passthrough":
        by_sni = is_auto_passthrough(owner.labels, listener)
        return ListenerTLS(_with_ciphers(ServerTLSSettings(mode="AUTO_PASSTHROUGH" if by_sni else "PASSTHROUGH"), tls))
    match tls.options.get(TERMINATE_MODE):
        case "ISTIO_SIMPLE":
            return ListenerTLS(ServerTLSSettings(mode="SIMPLE", credential_name="builtin://"))
        case "ISTIO_MUTUAL":
            return ListenerTLS(ServerTLSSettings(mode="ISTIO_MUTUAL"))
        case "MUTUAL" | "OPTIONAL_MUTUAL" as mode:
            settings = ServerTLSSettings(mode=mode)
        case _:
            settings = ServerTLSSettings(mode="SIMPLE")
    return _terminating_tls(db, owner, settings, tls, _frontend(gateway.spec, port))


def is_auto_passthrough(labels: Mapping[str, str], listener: Listener) -> bool:
    """Return True if a listener forwards TLS connections to any service in the mesh, selected by SNI.

    `labels` are those of the listener's Gateway.
    """
    if listener.tls is None:
        return False
    if listener.tls.options.get(LISTENER_PROTOCOL) == AUTO_PASSTHROUGH:
        return True
    return NETWORK in labels and str(listener.port) == labels.get(GATEWAY_PORT, str(EAST_WEST_PORT))


def _frontend(gateway: Gateway, port: int) -> FrontendTLS | None:
    if gateway.tls is None or gateway.tls.frontend is None:
        return None
    frontend = gateway.tls.frontend
    return next((port_tls.tls for port_tls in frontend.per_port if port_tls.port == port), frontend.default)


def _terminating_tls(
    db: Mesh, owner: Owner, settings: ServerTLSSettings, tls: ListenerTLSConfig, frontend: FrontendTLS | None
) -> ListenerTLS:
    if len(tls.certificate_refs) > _MAX_CERTIFICATES:
        return ListenerTLS(
            settings, Fault("InvalidCertificateRef", "TLS mode can only support up to 2 server certificates")
        )
    certificates = [_certificate(db, owner, ref) for ref in tls.certificate_refs]
    names = tuple(certificate for certificate in certificates if isinstance(certificate, str))
    if not names:
        return ListenerTLS(
            settings, _join_faults(certificate for certificate in certificates if isinstance(certificate, Fault))
        )
    settings = (
        replace(settings, credential_name=names[0]) if len(names) == 1 else replace(settings, credential_names=names)
    )
    if frontend is not None and frontend.validation is not None and frontend.validation.ca_certificate_refs:
        return _with_client_validation(db, owner, settings, tls, frontend.validation)
    return ListenerTLS(_with_ciphers(settings, tls))


def _join_faults(faults: Iterable[Fault]) -> Fault | None:
    ordered = tuple(faults)
    if not ordered:
        return Fault("InvalidCertificateRef", "TLS mode Terminate requires a certificate")
    return Fault(ordered[0].reason, "; ".join(fault.message for fault in ordered))


def _certificate(db: Mesh, owner: Owner, ref: SecretObjectReference) -> str | Fault:
    """Return the name of a valid certificate, or a fault.

    If the reference is not permitted, the fault does not disclose whether the certificate exists.
    """
    namespace = ref.namespace or owner.namespace
    if not may_refer(db, ReferenceKey(owner.kind, owner.namespace, SECRET.id, namespace, ref.name)):
        return _not_permitted("certificateRef", namespace, ref.name, owner)
    reference = f"{ref.group}/{ref.kind}/{ref.name}.{ref.namespace or ''}"
    if (ref.group, ref.kind) != SECRET.id:
        return Fault("InvalidCertificateRef", f"invalid certificate reference {reference}, only secret is allowed")
    material = credential(
        db, CredentialKey("gateway Secret", namespace, ref.name), db.settings.registry.cluster_id, False
    )
    if material is None:
        return Fault(
            "InvalidCertificateRef",
            f"invalid certificate reference {reference}, secret {namespace}/{ref.name} not found",
        )
    if isinstance(material, Flaw):
        return Fault(
            "InvalidCertificateRef", f"invalid certificate reference {reference}, {material.path} {material.reason}"
        )
    return f"{GATEWAY_SECRET}{namespace}/{ref.name}"


def _not_permitted(field: str, namespace: str, name: str, owner: Owner) -> Fault:
    message = (
        f"{field} {namespace}/{name} not accessible to a {owner.kind.name} in namespace {owner.namespace!r} "
        "(missing a ReferenceGrant?)"
    )
    return Fault("RefNotPermitted", message)


def _with_client_validation(
    db: Mesh, owner: Owner, settings: ServerTLSSettings, tls: ListenerTLSConfig, validation: FrontendValidation
) -> ListenerTLS:
    """Return TLS settings with validation of client certificates."""
    if len(validation.ca_certificate_refs) > 1:
        return ListenerTLS(settings, Fault("InvalidCACertificateRef", "only one caCertificateRef is supported"))
    roots = _roots(db, owner, validation.ca_certificate_refs[0])
    if isinstance(roots, Fault):
        return ListenerTLS(settings, roots)
    insecure_fallback = validation.mode == "AllowInsecureFallback"
    settings = replace(
        settings,
        mode="OPTIONAL_MUTUAL" if insecure_fallback else "MUTUAL",
        insecure_skip_verify=insecure_fallback,
        ca_cert_credential_name=roots,
    )
    terminate_mode = tls.options.get(TERMINATE_MODE)
    if terminate_mode in ("MUTUAL", "OPTIONAL_MUTUAL"):
        settings = replace(settings, mode=terminate_mode, insecure_skip_verify=False)
    return ListenerTLS(_with_ciphers(settings, tls))


def _roots(db: Mesh, owner: Owner, ref: ObjectReference) -> str | Fault:
    namespace = ref.namespace or owner.namespace
    kind = GroupKind(ref.group, ref.kind)
    if not may_refer(db, ReferenceKey(owner.kind, owner.namespace, kind, namespace, ref.name)):
        return _not_permitted("caCertificateRef", namespace, ref.name, owner)
    reference = f"{ref.group}/{ref.kind}/{ref.name}.{ref.namespace or ''}"
    if kind not in (SECRET.id, CONFIG_MAP.id):
        return Fault(
            "InvalidCACertificateKind",
            f"invalid CA certificate reference {reference}, only secret and configmap are allowed",
        )
    key = CredentialKey("gateway Secret" if kind == SECRET.id else "ConfigMap", namespace, ref.name)
    material = credential(db, key, db.settings.registry.cluster_id, True)
    if material is None:
        return Fault(
            "InvalidCACertificateRef",
            f"invalid CA certificate reference {reference}, {kind.name.lower()} {namespace}/{ref.name} not found",
        )
    if isinstance(material, Flaw):
        return Fault(
            "InvalidCACertificateRef",
            f"invalid CA certificate reference {reference}, {material.path} {material.reason}",
        )
    return f"{GATEWAY_SECRET if kind == SECRET.id else CONFIG_MAP_PREFIX}{namespace}/{ref.name}{CA_SUFFIX}"


def _with_ciphers(settings: ServerTLSSettings, tls: ListenerTLSConfig) -> ServerTLSSettings:
    cipher_suites = tuple(name.strip() for name in tls.options.get(CIPHER_SUITES, "").split(",") if name.strip())
    return replace(settings, cipher_suites=cipher_suites) if cipher_suites else settings
