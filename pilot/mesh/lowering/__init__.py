"""Converts objects of the Gateway API, Ingresses and WasmPlugins to objects of Istio's kinds.

Importing this package registers the conversions as sources of the resulting kinds. The package pilot.mesh imports it.
If several sources have an object with the same key, the source that was added first takes precedence.
"""

from pilot.config.kinds.istio import DESTINATION_RULE, GATEWAY, SERVICE_ENTRY, TRAFFIC_EXTENSION, VIRTUAL_SERVICE
from pilot.mesh.lowering.gateway_api.destination_rules import destination_rules_of_policies
from pilot.mesh.lowering.gateway_api.external_backends import service_entries_of_backends
from pilot.mesh.lowering.gateway_api.http_services import virtual_services_of_http_routes
from pilot.mesh.lowering.gateway_api.istio_gateways import gateways_of_listeners
from pilot.mesh.lowering.gateway_api.layer4_services import virtual_services_of_layer4_routes
from pilot.mesh.lowering.ingress.ingress_gateways import gateways_of_ingresses
from pilot.mesh.lowering.ingress.ingress_virtual_services import virtual_services_of_ingresses
from pilot.mesh.lowering.wasm_plugins import extensions_of_wasm_plugins

VIRTUAL_SERVICE.add_source(virtual_services_of_http_routes)
VIRTUAL_SERVICE.add_source(virtual_services_of_layer4_routes)
VIRTUAL_SERVICE.add_source(virtual_services_of_ingresses)
GATEWAY.add_source(gateways_of_listeners)
GATEWAY.add_source(gateways_of_ingresses)
DESTINATION_RULE.add_source(destination_rules_of_policies)
SERVICE_ENTRY.add_source(service_entries_of_backends, enabled=lambda db: db.settings.gateway_api.alpha)
TRAFFIC_EXTENSION.add_source(extensions_of_wasm_plugins)
