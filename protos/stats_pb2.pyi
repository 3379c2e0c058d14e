import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reporter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[Reporter]
    SERVER_GATEWAY: _ClassVar[Reporter]
UNSPECIFIED: Reporter
SERVER_GATEWAY: Reporter

class MetricConfig(_message.Message):
    __slots__ = ("dimensions", "name", "tags_to_remove", "drop")
    class DimensionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAGS_TO_REMOVE_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    dimensions: _containers.ScalarMap[str, str]
    name: str
    tags_to_remove: _containers.RepeatedScalarFieldContainer[str]
    drop: bool
    def __init__(self, dimensions: _Optional[_Mapping[str, str]] = ..., name: _Optional[str] = ..., tags_to_remove: _Optional[_Iterable[str]] = ..., drop: _Optional[bool] = ...) -> None: ...

class PluginConfig(_message.Message):
    __slots__ = ("disable_host_header_fallback", "tcp_reporting_duration", "metrics", "reporter")
    DISABLE_HOST_HEADER_FALLBACK_FIELD_NUMBER: _ClassVar[int]
    TCP_REPORTING_DURATION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    REPORTER_FIELD_NUMBER: _ClassVar[int]
    disable_host_header_fallback: bool
    tcp_reporting_duration: _duration_pb2.Duration
    metrics: _containers.RepeatedCompositeFieldContainer[MetricConfig]
    reporter: Reporter
    def __init__(self, disable_host_header_fallback: _Optional[bool] = ..., tcp_reporting_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., metrics: _Optional[_Iterable[_Union[MetricConfig, _Mapping]]] = ..., reporter: _Optional[_Union[Reporter, str]] = ...) -> None: ...
