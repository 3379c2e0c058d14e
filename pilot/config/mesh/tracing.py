"""The tracing settings of ProxyConfig."""

from __future__ import annotations

from typing import ClassVar, Literal

from pilot.config.base import Int64, OneOf, Strict, UInt32
from pilot.config.networking.destination_rule import ClientTLSSettings

TraceContext = Literal["UNSPECIFIED", "W3C_TRACE_CONTEXT", "GRPC_BIN", "CLOUD_TRACE_CONTEXT", "B3"]


class Zipkin(Strict, frozen=True):
    address: str = ""


class Lightstep(Strict, frozen=True):
    address: str = ""
    access_token: str = ""


class Datadog(Strict, frozen=True):
    address: str = ""


class Stackdriver(Strict, frozen=True):
    debug: bool = False
    max_number_of_attributes: Int64 | None = None
    max_number_of_annotations: Int64 | None = None
    max_number_of_message_events: Int64 | None = None


class OpenCensusAgent(Strict, frozen=True):
    address: str = ""
    context: tuple[TraceContext, ...] = ()


class CustomTag(OneOf, frozen=True):
    groups: ClassVar[tuple[tuple[str, ...], ...]] = (("literal", "environment", "header"),)

    literal: LiteralValue | None = None
    environment: Environment | None = None
    header: RequestHeader | None = None

    @property
    def is_whole(self) -> bool:
        """True if the tag has a source for its value."""
        source = (
            self.literal.value
            if self.literal
            else self.environment.name
            if self.environment
            else self.header.name
            if self.header
            else ""
        )
        return bool(source) and not any(c in source for c in "\0\r\n")


class LiteralValue(Strict, frozen=True):
    value: str = ""


class Environment(Strict, frozen=True):
    name: str = ""
    default_value: str = ""


class RequestHeader(Strict, frozen=True):
    name: str = ""
    default_value: str = ""


class Tracing(OneOf, frozen=True):
    groups: ClassVar = (("zipkin", "lightstep", "datadog", "stackdriver", "open_census_agent"),)

    zipkin: Zipkin | None = None
    lightstep: Lightstep | None = None
    datadog: Datadog | None = None
    stackdriver: Stackdriver | None = None
    open_census_agent: OpenCensusAgent | None = None
    custom_tags: dict[str, CustomTag] = {}
    max_path_tag_length: UInt32 = 0
    sampling: float = 0.0
    tls_settings: ClientTLSSettings | None = None
    enable_istio_tags: bool | None = None
