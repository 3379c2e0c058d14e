"""The code behind each entrance of a control plane, called in this process and without a network."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import pathlib
import resource
import signal
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

import grpc
import msgspec

from ca.service import CertificateService
from pilot.bootstrap import ControlPlane
from pilot.bootstrap.security.port_auth import authenticate_csr
from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import GroupKind
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.ingest.decode import OWN, Decoded, decode_object, listed_objects
from pilot.ingest.files.documents import SyntaxFault
from pilot.ingest.files.file_decoder import FileDecoder
from pilot.ingest.object_decoder import large_size
from pilot.lib.logging.log import scope
from pilot.settings.parse import load
from pilot.xds.ads import EOF
from pilot.xds.authn.identity import Caller
from testing.hostile.callers import Certificates, Requests, Streams
from testing.hostile.search import Cost
from testing.kube.webhooks import config_texts, review
from testing.mesh.problems import check_objects
from testing.mesh.world import World, proxy
from testing.security.tokens import write_keys
from webhook.gateway.render import GatewayToRender
from webhook.inject.config import decode_config
from webhook.server.pod_review import InjectionSettings, PodFacts
from webhook.server.program import PodReview, review_config, review_pod, run

LONGEST = 5.0
"""Maximum number of CPU seconds for an input. 1 MB of small objects take up to three."""
LONGEST_WAIT = 100.0
"""Maximum number of seconds for an input, which only a hang exceeds, even on a busy machine."""
TURNS = 30
"""Number of turns of the event loop for which a stream stays open after its last message."""


class TooLong(BaseException):
    """An input has taken the maximum of CPU time. No handler of exceptions catches this."""


class Fault(NamedTuple):
    """An error that is not the caller's."""

    entrance: str
    text: str


class StepMeter:
    """Measures the longest step of the event loop: the CPU seconds between two calls, which never interrupt."""

    def __init__(self) -> None:
        self.longest, self._started = 0.0, time.thread_time()

    def start(self) -> None:
        self._started = time.thread_time()

    def __call__(self) -> bool:
        """Return that the computation need not be interrupted."""
        now = time.thread_time()
        self.longest, self._started = max(self.longest, now - self._started), now
        return False


class Objects:
    """A mesh with two proxies, into which objects are put and removed again.

    `meter` measures the steps in which objects are decoded, committed and derived.
    """

    def __init__(self, meter: StepMeter) -> None:
        self._meter = meter
        self.world, self._files = World(), FileDecoder(OWN, CATALOGUE)
        self._proxies = [
            self.world.connect(proxy("sidecar", "web", "hostile", "10.0.0.1")),
            self.world.connect(proxy("router", "edge", "hostile", "10.0.0.2", {"istio": "ingress"})),
        ]
        self._read_all()

    def put_file(self, text: str) -> None:
        with contextlib.suppress(SyntaxFault):
            for decoded in self._files.read("hostile.yaml", text.encode()):
                with self.world.mesh.pausing(self._meter):
                    self._apply(decoded)
                self._meter.start()

    def decode(self, plain: Any) -> None:
        """Decode objects of an API server, which is one step for each object that no worker process decodes."""
        for _, item in listed_objects(plain, ""):
            raw = json.dumps(item).encode()
            kind = CATALOGUE.find(GroupKind(item["apiVersion"].rpartition("/")[0], item["kind"]))
            if kind is not None and len(raw) < large_size(kind):  # a worker process decodes larger objects
                self._meter.start()
                decode_object(kind, msgspec.json.decode(raw), OWN)
                self._meter()

    def _apply(self, decoded: Decoded) -> None:
        for problem in decoded.problems:
            assert problem.message, problem
            assert problem.code != "internal-error", problem
        if decoded.refused:
            assert any(problem.path for problem in decoded.problems), decoded.problems
        if not decoded.entries:
            return
        rows = {(entry.table, entry.key): entry.object for entry in decoded.entries}
        self._meter.start()
        self.world.set(rows)
        self._read_all()
        for _ in check_objects(self.world):
            self._meter()
        self.world.set(dict.fromkeys(rows))
        self._read_all()
        self.world.sweep()
        assert not self.world.failures, self.world.failures

    def _read_all(self) -> None:
        for node in self._proxies:
            self.world.resources(node)


class _Call:
    """A gRPC call whose peer sends messages, and ends the call when they are processed."""

    def __init__(self, messages: Sequence[bytes], headers: Sequence[tuple[str, str]]) -> None:
        self._messages, self._headers = list(reversed(messages)), headers
        self._status: grpc.StatusCode | None = None

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        return self._headers

    async def read(self) -> Any:
        if self._messages:
            return self._messages.pop()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return EOF

    async def write(self, message: bytes) -> None:
        assert message

    async def abort(self, status: grpc.StatusCode, details: str = "") -> None:
        self._status = status
        raise _Aborted(status, details)

    def code(self) -> grpc.StatusCode | None:
        return self._status

    def cancelled(self) -> bool:
        return False


class _Aborted(Exception):
    """A call has ended with a status."""


class _Peer(asyncio.Transport):
    """An HTTP connection whose peer reads everything."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", 8080)})
        self.closed = False

    def write(self, data: Any) -> None:
        assert data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        """Do nothing, because everything has been sent."""

    def resume_reading(self) -> None:
        """Do nothing, because everything has been sent."""

    def get_write_buffer_size(self) -> int:
        return 0


class _MeasuredLoop(asyncio.SelectorEventLoop):
    """An event loop that measures its callbacks."""

    def __init__(self, meter: StepMeter) -> None:
        super().__init__()
        self._meter = meter

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        def measured() -> None:
            self._meter.start()
            callback(*args)
            self._meter()

        return super().call_soon(measured, context=context)


class Ports:
    """A control plane whose services are called without connections."""

    def __init__(self, meter: StepMeter, folder: pathlib.Path) -> None:
        (folder / "config").mkdir()
        injection = folder / "injection"
        injection.mkdir()
        for name, text in zip(("config", "values"), config_texts(), strict=True):
            (injection / name).write_text(text)
        addresses = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")
        words = [f"--{name}=127.0.0.1:0" for name in addresses]
        words += [f"--configDir={folder / 'config'}", f"--tokenKeys={write_keys(folder / 'keys.json')}"]
        words += [f"--injectionDir={injection}", "--ctrlz_port=0"]
        self._loop = _MeasuredLoop(meter)
        asyncio.set_event_loop(self._loop)
        self._plane = ControlPlane(load(words, {"PILOT_MAX_REQUESTS_PER_SECOND": "100000"}).settings)
        self._task = self._loop.create_task(self._plane.run())
        self._loop.run_until_complete(self._wait_ready())
        plain = self._plane._grpc_services()[0]
        service = plain.handlers[0]._method_handlers
        self._methods = {name.rpartition("/")[2]: handler.stream_stream for name, handler in service.items()}
        security = self._plane.security
        assert security.authority is not None
        authenticate = authenticate_csr(
            lambda context: Caller(context.peer(), dict(context.invocation_metadata())), security.secure.authenticate
        )
        self._certificates = CertificateService(security.authority.sign, authenticate, self._plane.metrics)

    async def _wait_ready(self) -> None:
        while not self._plane.ready:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        self._plane.end()
        self._loop.run_until_complete(self._task)
        self.abandon()

    def abandon(self) -> None:
        """Cancel all tasks."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=5))
        self._loop.close()

    def xds(self, value: Streams) -> None:
        async def stream() -> None:
            call = _Call(value.messages, ())
            with contextlib.suppress(_Aborted):
                await self._methods[value.method](None, call)

        self._gather(stream, value.streams)

    def certificate(self, value: Certificates) -> None:
        async def request() -> None:
            with contextlib.suppress(_Aborted):
                await self._certificates._create(value.message, _Call((), value.headers))

        self._gather(request, value.calls)

    def _gather(self, work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
        async def gather() -> None:
            async with asyncio.timeout(LONGEST_WAIT):
                await asyncio.gather(*(work() for _ in range(count)))

        self._loop.run_until_complete(gather())

    def http(self, name: str, value: Requests) -> None:
        server = self._plane.ports[name]._runner.server
        self._gather(lambda: _send(server(), value.data), value.connections)


async def _send(protocol: Any, data: bytes) -> None:
    """Send data on an HTTP connection, and close it when there are no more responses."""
    peer = _Peer()
    protocol.connection_made(peer)
    for start in range(0, len(data), 1 << 16):  # as from a socket
        if not peer.closed:
            protocol.data_received(data[start : start + (1 << 16)])
            await asyncio.sleep(0)
    for turn in range(100):
        if peer.closed or (protocol._waiter is not None and not protocol._messages):
            break
        await asyncio.sleep(0 if turn < 50 else 0.001)
    protocol.connection_lost(None)
    await asyncio.sleep(0)


def gateway_with(overlay: str) -> GatewayToRender:
    """Return a Gateway whose parametersRef refers to a ConfigMap with an overlay."""
    return GatewayToRender(
        metadata={"name": "edge", "namespace": "hostile", "uid": "u"},
        class_name="istio",
        template="kube-gateway",
        managed="istio.io-gateway-controller",
        name="edge-istio",
        account="edge-istio",
        service_type="ClusterIP",
        ports=(("http", 80, "http", "TCP"),),
        addresses=(),
        labels={},
        annotations={},
        overlays=({"deployment": overlay},),
        proxy_config=ProxyConfig(),
        mesh=MeshConfig(),
        cluster="Kubernetes",
        revision="default",
        kubernetes=134,
        uid=1337,
        gid=1337,
    )


class Product:
    """The entrances by name. `measure` returns the cost of an input."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, self._meter = folder, StepMeter()
        self._start()
        settings = InjectionSettings(decode_config(*config_texts()), MeshConfig())

        def validate(plain: Any) -> None:
            body = review_config(json.dumps(review(plain)).encode()).body
            assert b"internal error" not in body, body[-500:]

        def inject(plain: Any) -> None:
            job = PodReview("/inject", PodFacts())
            body = review_pod(job, json.dumps(review(plain)).encode(), settings).body
            assert b"internal error" not in body, body[-500:]

        def render(overlay: str) -> None:
            run(gateway_with(overlay), b"", settings)

        self.entrances: dict[str, Callable[[Any], None]] = {
            "file": lambda value: self._objects.put_file(value if isinstance(value, str) else json.dumps(value)),
            "apiserver": lambda value: self._objects.decode(value),
            "/validate": validate,
            "/inject": inject,
            "overlay": render,
            "15010": lambda value: self._ports.xds(value),
            "15012": lambda value: self._ports.certificate(value),
            "8080": lambda value: self._ports.http("HTTP", value),
            "15017": lambda value: self._ports.http("webhooks", value),
        }
        self.faults: list[Fault] = []
        self._inputs = 0
        self._log = _ErrorLog()
        scope("default").addHandler(self._log)
        self._collects = gc.isenabled()

    def _start(self) -> None:
        self._objects, self._ports = (
            Objects(self._meter),
            Ports(self._meter, pathlib.Path(tempfile.mkdtemp(dir=self._folder))),
        )

    def _restart(self) -> None:
        """Replace everything, because an interrupted input leaves tasks and values in any state.

        The interruption can also leave the garbage collector in another state.
        """
        (gc.enable if self._collects else gc.disable)()
        self._ports.abandon()
        self._start()

    def close(self) -> None:
        scope("default").removeHandler(self._log)
        self._ports.close()

    def measure(self, entrance: str, value: Any, memory: bool = False) -> Cost:
        """Return the cost of an input at an entrance."""
        process = self.entrances[entrance]
        self._inputs += 1
        if self._inputs % 300 == 0:
            gc.collect()
        self._meter.longest = 0.0
        started = time.process_time()
        self._run(entrance, process, value)
        cpu, step = time.process_time() - started, self._meter.longest
        if not memory or cpu > LONGEST / 6:
            return Cost(cpu, 0, step)
        tracemalloc.start()
        self._run(entrance, process, value, 5 * LONGEST)  # which tracing may need
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return Cost(cpu, peak, step)

    def _run(self, entrance: str, process: Callable[[Any], None], value: Any, limit: float = LONGEST) -> None:
        try:
            with _cpu_limit(limit):
                process(value)
        except TooLong:
            self.faults.append(Fault(entrance, f"more than {limit:g} CPU seconds"))
            self._restart()
        except Exception as error:
            self.faults.append(Fault(entrance, f"{type(error).__name__}: {error}"[:500]))
            self._restart()
        self.faults += [Fault(entrance, text) for text in self._log.take()]

    def process(self, entrance: str, value: Any) -> list[str]:
        """Process an input, and return the errors that it has logged."""
        self.entrances[entrance](value)
        return self._log.take()


@contextlib.contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    def end(*_: Any) -> None:
        raise TooLong

    previous = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def limit_memory(size: int = 4 << 30) -> None:
    """Limit the address space of this process, so that an input cannot exhaust the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


class _ErrorLog(logging.Handler):
    """Collects errors that have tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._texts.append(f"{record.getMessage()[:200]}: {record.exc_info[1]!r}"[:500])

    def take(self) -> list[str]:
        texts, self._texts = self._texts, []
        return texts
