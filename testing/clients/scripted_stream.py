"""Scripts of xDS sessions: requests and changes, each followed by the responses.

> eds a b @1        a request: names, and the nonce of the first response of that type (@0 is unknown, none means "")
> eds +a -b =c *    delta: subscribe, unsubscribe, initial_resource_versions; a bare `*` or name is a subscription
> cds @1 !5 text    a NACK of the first response
~ cds a=2 b c-      changes: resource a has new content, b exists, c is deleted
! push | release    resend everything; release delayed responses
! replan eds a      a new plan without a
< eds a b -c        the next response: resources in order, removed names
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.envoy.resource import Resource
from pilot.lib.xds_types import BY_SHORT_NAME, CLUSTER, short_name
from pilot.xds.session.delta import DeltaSession
from pilot.xds.session.name_sets import NameSets
from pilot.xds.session.session import Acknowledgement, Session
from pilot.xds.session.snapshot import Snapshot, TypeState
from pilot.xds.session.sotw import SotwSession

WARMS = "~"


def resource(short_type: str, name: str, content: str = "1") -> Resource:
    """Return a resource with a content. A cluster named a to f waits for the endpoints of the same name."""
    warms = name if short_type == "cds" and name[0] <= "f" else ""
    return Resource.of(BY_SHORT_NAME[short_type], cluster_pb2.Cluster(name=name, alt_stat_name=content), warms=warms)


class ScriptedResources:
    """Resources by type and the current view of each type.

    The view is a plan of one group or, if names have a prefix (`group:name`), of several.
    """

    def __init__(self) -> None:
        self._contents: dict[str, dict[str, str]] = {}
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._snapshots: dict[tuple[str, str], Snapshot] = {}
        self._views: dict[str, TypeState] = {}

    def change(self, short_type: str, changes: Iterable[str]) -> None:
        contents = self._contents.setdefault(short_type, {})
        groups = set()
        for change in changes:
            group = change.partition(":")[0] if ":" in change else ""
            groups.add(group)
            if change.endswith("-"):
                contents.pop(change[:-1], None)
            else:
                name, _, content = change.partition("=")
                contents[name] = content or contents.get(name, "1")
        for group in sorted(groups):
            self._snapshots[short_type, group] = Snapshot(self._group(short_type, group, contents))
        snapshots = tuple(s for (kind, _), s in sorted(self._snapshots.items()) if kind == short_type)
        self._views[BY_SHORT_NAME[short_type]] = TypeState(short_type, snapshots)

    def replan(self, short_type: str, *without: str) -> None:
        """Switch to another plan with the same content except for some names."""
        old = self._views[BY_SHORT_NAME[short_type]].union()
        self._views[BY_SHORT_NAME[short_type]] = TypeState(
            object(), (Snapshot(r for name, r in old.items() if name not in without),)
        )

    def state(self, type_url: str) -> TypeState | None:
        return self._views.get(type_url)

    def content(self, short_type: str) -> dict[str, str]:
        return {name.rpartition(":")[2]: content for name, content in self._contents.get(short_type, {}).items()}

    def _group(self, short_type: str, group: str, contents: dict[str, str]) -> Iterator[Resource]:
        for name, content in contents.items():
            if (name.partition(":")[0] if ":" in name else "") == group:
                bare = name.rpartition(":")[2]
                yield self._resources.setdefault((short_type, bare, content), resource(short_type, bare, content))


class Stream:
    """A session and its resources."""

    def __init__(self, session: Session, world: ScriptedResources) -> None:
        self.session, self.world = session, world
        self.nonces: dict[str, list[str]] = {}
        self.received: list[Acknowledgement] = []
        self._count = 0

    def play(self, line: str) -> None:
        verb, kind, *words = line.split()
        match verb:
            case ">":
                self.received.append(self.session.receive(self.request(kind, words)))
            case "~":
                self.world.change(kind, words)
            case "!":
                {
                    "push": self.session.owe_everything,
                    "release": self.session.release,
                    "replan": lambda: self.world.replan(*words),
                }[kind]()
            case _:
                raise ValueError(line)

    def responses(self) -> list[str]:
        """Return every due response as a line, and mark it as sent."""
        lines = []
        while (pending := self.session.next_response(self.world.state)) is not None:
            self._count += 1
            kind = short_name(pending.type_url)
            nonce = f"n{self._count}"
            response = self.decode(self.session.encode(pending, "v1", nonce))
            assert (response.nonce, response.type_url) == (nonce, pending.type_url)
            self.session.mark_sent(pending, nonce, float(self._count))
            self.nonces.setdefault(kind, []).append(nonce)
            lines.append(
                " ".join(
                    [
                        "<",
                        kind,
                        *self.names(response),
                        *(f"-{name}" for name in getattr(response, "removed_resources", ())),
                    ]
                )
            )
        return lines

    def request(self, kind: str, words: Sequence[str]) -> Any:
        delta = isinstance(self.session, DeltaSession)
        request = discovery_pb2.DeltaDiscoveryRequest() if delta else discovery_pb2.DiscoveryRequest()
        request.type_url = BY_SHORT_NAME[kind]
        for index, word in enumerate(words):
            if word.startswith("@"):
                request.response_nonce = self.nonces[kind][int(word[1:]) - 1] if word != "@0" else "never"
            elif word.startswith("!"):
                request.error_detail.code, request.error_detail.message = int(word[1:]), " ".join(words[index + 1 :])
                break
            elif not delta:
                request.resource_names.append(word)
            elif word.startswith("-"):
                request.resource_names_unsubscribe.append(word[1:])
            elif word.startswith("="):
                request.initial_resource_versions[word[1:]] = ""
            else:
                request.resource_names_subscribe.append(word.removeprefix("+"))
        return request

    def decode(self, data: bytes) -> Any:
        if isinstance(self.session, DeltaSession):
            return discovery_pb2.DeltaDiscoveryResponse.FromString(data)
        return discovery_pb2.DiscoveryResponse.FromString(data)

    @staticmethod
    def names(response: Any) -> list[str]:
        return [cluster_pb2.Cluster.FromString(getattr(r, "resource", r).value).name for r in response.resources]


def play(session: Session, script: str) -> list[str]:
    """Return the script as it runs: each line that is no response, followed by the actual responses."""
    stream, out = Stream(session, ScriptedResources()), []
    for line in filter(None, (raw.split("#")[0].strip() for raw in script.splitlines())):
        if not line.startswith("<"):
            stream.play(line)
            out += [" ".join(line.split()), *stream.responses()]
    return out


def normalize(script: str) -> list[str]:
    """Return the lines of a script without comments and extra spaces."""
    return [" ".join(line.split()) for raw in script.splitlines() if (line := raw.split("#")[0].strip())]


def sotw() -> SotwSession:
    return SotwSession(NameSets())


def delta() -> DeltaSession:
    return DeltaSession(NameSets())


__all__ = ["CLUSTER", "ScriptedResources", "Stream", "delta", "normalize", "play", "resource", "sotw"]
