"""Comparison of all resources that proxies receive with those that istiod sends.

For each scenario a control plane starts, the proxies connect, and the steps are applied. A resource is equal if every leaf is.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import pathlib
import tempfile
import tomllib
from typing import NamedTuple

import grpc

from tests.conformance.client import CHANNEL_OPTIONS, AdsClient
from tests.conformance.comparison import Score, compare, referenced_names
from tests.conformance.recording import Recording, Resources, State, load_recording
from tests.conformance.resources import register_messages, to_plain
from tests.conformance.scenario import Scenario, find_scenarios, load_scenario
from tests.conformance.server import Server

HERE = pathlib.Path(__file__).parent
MESHES = HERE / "meshes"
FLOORS = HERE / "floors.toml"
STEP_SECONDS = 1.0
"""Time after a step in which its changes arrive: the server watches its files, and debounces."""
States = dict[tuple[str, str], State]


class Result(NamedTuple):
    """Scores of a scenario by type. `responses` are the numbers of responses after the steps, here and at istiod."""

    scores: dict[str, Score]
    error: str
    responses: tuple[int, int]

    @property
    def total(self) -> Score:
        total = Score()
        for score in self.scores.values():
            total.add(score)
        return total


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", help="compare scenarios whose names contain one of these words")
    parser.add_argument(
        "--types", type=lambda text: set(text.split(",")), help="compare only these types, such as CDS,EDS"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, help="write the resources that proxies receive to files in this folder"
    )
    parser.add_argument("--quiet", type=float, default=0.5, help="seconds of silence that end a collection")
    parser.add_argument("--limit", type=float, default=20, help="seconds that a collection may take")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios that run at the same time")


async def collect(scenario: Scenario, server: Server, quiet: float, limit: float) -> States:
    """Connect all proxies, apply the steps, and return the resources of each proxy after each step."""
    states: States = {}
    async with contextlib.AsyncExitStack() as stack:
        clients: list[AdsClient] = []
        for proxy in scenario.proxies:
            channel = grpc.aio.insecure_channel(server.process.xds, options=CHANNEL_OPTIONS)
            await stack.enter_async_context(channel)
            clients.append(AdsClient(proxy, channel))
            stack.push_async_callback(clients[-1].close)

        async def settle(step: str) -> None:
            await asyncio.gather(*(client.settle(quiet, limit) for client in clients))
            for client in clients:
                states[client.proxy.name, step] = State(_plain_resources(client), client.responses)

        await settle("")
        objects = list(scenario.objects)
        for step in scenario.steps:
            objects = step.apply(objects)
            for client in clients:
                client.expect_changes(STEP_SECONDS)
            server.write(objects)
            await settle(step.name)
    return states


def _plain_resources(client: AdsClient) -> Resources:
    return {kind: {name: to_plain(packed) for name, packed in rows.items()} for kind, rows in client.resources.items()}


async def run_scenario(scenario: Scenario, options: argparse.Namespace) -> Result:
    """Compare one scenario. Without a recording there is nothing to compare, and the scores are empty."""
    states: States = {}
    error = ""
    with tempfile.TemporaryDirectory(prefix="conformance-") as work:
        server = Server(scenario, pathlib.Path(work))
        try:
            await server.wait_ready()
            states = await collect(scenario, server, options.quiet, options.limit)
        except (RuntimeError, AssertionError, TimeoutError, grpc.RpcError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        finally:
            await server.stop()
    if options.out:
        write_states(states, options.out / f"{scenario.name}.json")
    recording = load_recording(scenario.folder)
    if recording is None:
        return Result({}, error or "no recording", (0, 0))
    steps = [state_key for state_key in recording.states if state_key[1]]
    responses = (
        sum(states[p].responses for p in steps if p in states),
        sum(recording.states[p].responses for p in steps),
    )
    return Result(score_states(recording, states, options.types), error, responses)


def write_states(states: States, path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain: dict[str, dict[str, Resources]] = {}
    for (proxy, step), state in states.items():
        plain.setdefault(proxy, {})[step] = state.resources
    path.write_text(json.dumps(plain, indent=1, sort_keys=True), "utf-8")


def score_states(recording: Recording, states: States, types: set[str] | None) -> dict[str, Score]:
    """Compare states with the recorded ones, by type.

    After a step, routes and endpoints to which no listener or cluster refers are left out on both sides.
    """
    scores: dict[str, Score] = collections.defaultdict(Score)
    for (proxy, step), state in recording.states.items():
        actual = states[proxy, step].resources if (proxy, step) in states else {}
        for kind, expected in state.resources.items():
            if types and kind not in types:
                continue
            names = expected.keys() | actual.get(kind, {}).keys()
            names = {name for name in names if (proxy, step, kind, name) not in recording.unstable}
            if step and kind in ("RDS", "EDS"):
                names &= referenced_names(state.resources, kind) | referenced_names(actual, kind)
            sides = [{n: v for n, v in rows.items() if n in names} for rows in (expected, actual.get(kind, {}))]
            scores[kind].add(compare(f"{proxy}{f'@{step}' if step else ''} {kind}", *sides))
    return scores


async def run(options: argparse.Namespace) -> bool:
    """Compare scenarios, print a line each and the totals, and return whether none is below its floor."""
    register_messages()
    paths = find_scenarios([MESHES, *options.meshes], options.words)
    floors: dict[str, float] = tomllib.loads(FLOORS.read_text("utf-8"))["xds"]
    semaphore = asyncio.Semaphore(options.jobs)

    async def run_one(path: pathlib.Path) -> Result:
        async with semaphore:
            return await run_scenario(load_scenario(path), options)

    totals: dict[str, Score] = collections.defaultdict(Score)
    equal_scenarios, failed, responses = 0, [], [0, 0]
    for path, task in [(path, asyncio.create_task(run_one(path))) for path in paths]:
        result = await task
        total = result.total
        for kind, score in result.scores.items():
            totals[kind].add(score)
        responses = [a + b for a, b in zip(responses, result.responses, strict=True)]
        equal_scenarios += not result.error and total.equal == total.resources
        floor = floors.get(path.name, 1.0) if path.parent == MESHES and not options.types else 0.0
        below = total.share < floor
        if result.error or below:
            failed.append(path.name)
        print(f"{path.name:44} {_figures(total)}" + (f"   below {floor:.1%}" if below else ""), flush=True)
        for line in [result.error, *total.details()] if options.verbose or below or result.error else []:
            print(f"  {line}" if line else "", end="\n" if line else "")
    print()
    for kind, score in sorted(totals.items()):
        print(
            f"{kind:5} {_figures(score)}   missing {len(score.missing)}, surplus {len(score.surplus)}, different {len(score.different)}"
        )
    if responses[1]:
        print(f"responses after the steps: {responses[0]}, istiod {responses[1]}")
    grand_total = Score()
    for score in totals.values():
        grand_total.add(score)
    print(f"xds: {equal_scenarios} of {len(paths)} scenarios are equal; {_figures(grand_total)}")
    if failed:
        print("failed:", ", ".join(failed))
    return bool(paths) and not failed


def _figures(score: Score) -> str:
    return f"{score.equal:4} of {score.resources:<4} resources {100 * score.share:5.1f} %   leaves {100 * score.leaf_share:5.1f} %"
