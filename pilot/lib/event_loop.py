"""The event loop of the control plane process. It receives several gRPC events in one iteration."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable
from typing import Any, TypeVarTuple, Unpack

import uvloop

Ts = TypeVarTuple("Ts")
_GRPC_QUEUE = "PollerCompletionQueue"
"""The class in grpcio whose method handles events. It is not public. Without it, the loop works as uvloop's."""
MAX_EVENTS = 16
"""Number of events for which bytes are read in an iteration. With more, iterations of a busy event loop become longer,
and the last proxies of a push are served later."""


class EventLoop(uvloop.Loop):
    """uvloop's event loop, with faster wake-ups by gRPC.

    A thread of grpcio writes one byte to a socket for each event, and blocks when the buffer of the socket is full,
    after 278 bytes on Linux. grpcio reads one byte in each iteration of the event loop, although it handles all events
    that have occurred. When iterations are long, all streams together would therefore receive one message in each, and
    an overload would last long after its cause. This loop reads the bytes of several events.

    See https://github.com/grpc/grpc/blob/master/src/python/grpcio/grpc/_cython/_cygrpc/aio/completion_queue.pyx.pxi
    """

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Call `callback` whenever `fd` can be read."""
        if isinstance(fd, socket.socket) and _handles_grpc_events(callback):
            super().add_reader(fd, functools.partial(_handle_events, fd, callback), *args)
        else:
            super().add_reader(fd, callback, *args)


def _handles_grpc_events(callback: Callable[..., Any]) -> bool:
    method = callback.func if isinstance(callback, functools.partial) else callback
    return type(getattr(method, "__self__", None)).__name__ == _GRPC_QUEUE


def _handle_events(wakeups: socket.socket, handle: Callable[..., Any], *args: Any) -> None:
    """Read the bytes of several events except one, which grpcio reads before it handles the events.

    A byte is written after its event can be handled, so no event is left without a byte.
    """
    count = len(wakeups.recv(MAX_EVENTS, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    if count > 1:
        wakeups.recv(count - 1)
    handle(*args)
