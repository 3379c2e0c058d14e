from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FilterConfig(_message.Message):
    __slots__ = ("alpn_override",)
    class Protocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HTTP10: _ClassVar[FilterConfig.Protocol]
        HTTP11: _ClassVar[FilterConfig.Protocol]
        HTTP2: _ClassVar[FilterConfig.Protocol]
    HTTP10: FilterConfig.Protocol
    HTTP11: FilterConfig.Protocol
    HTTP2: FilterConfig.Protocol
    class AlpnOverride(_message.Message):
        __slots__ = ("upstream_protocol", "alpn_override")
        UPSTREAM_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
        ALPN_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
        upstream_protocol: FilterConfig.Protocol
        alpn_override: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, upstream_protocol: _Optional[_Union[FilterConfig.Protocol, str]] = ..., alpn_override: _Optional[_Iterable[str]] = ...) -> None: ...
    ALPN_OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    alpn_override: _containers.RepeatedCompositeFieldContainer[FilterConfig.AlpnOverride]
    def __init__(self, alpn_override: _Optional[_Iterable[_Union[FilterConfig.AlpnOverride, _Mapping]]] = ...) -> None: ...
