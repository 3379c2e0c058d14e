"""The dashboard in a browser. It needs Chromium and `pip install playwright`."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import shutil
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.application import application
from pilot.debug.changes import ChangedObject
from pilot.debug.dashboard import routes, stream
from pilot.debug.field_changes import FieldChange
from pilot.debug.sources import Sources
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.nack import Nack, NackKey
from testing.mesh.debug_server import FakeWatch, sources
from testing.mesh.listeners import service
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from tests.unit.debug.dashboard.test_fleet import connection, rejected

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
if not CHROMIUM:
    pytest.skip("the tests of the dashboard need Chromium (apt-get install chromium)", allow_module_level=True)
playwright_api = pytest.importorskip(
    "playwright.async_api", reason="the tests of the dashboard need Playwright (pip install playwright)"
)

HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"
ROUTE = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "b", "r")
FAULT = "fault: {abort: {percentage: {value: 30}, httpStatus: 500}}"
CALLS = (("front", "web"), ("web", "cart"), ("web", "stock"), ("cart", "stock"), ("stock", "cart"), ("front", "stock"))


def workload(name: str, number: int, namespace: str = "a") -> list[Plain]:
    """Return a Service with one Pod, whose service account has the name of the service."""
    ip = f"10.0.{number}.1"
    selected = service(name, "[{name: http, port: 80, targetPort: 8080}]")
    workload_pod = pod(f"{name}-0", ip, labels=f"{{app: {name}}}")
    workload_pod["spec"]["serviceAccountName"] = name
    objects = [selected, workload_pod, endpoint_slice(name, at(ip, f"{name}-0"))]
    for one in objects:
        one["metadata"]["namespace"] = namespace
    return objects


def policy(caller: str, target: str) -> Plain:
    principal = f"cluster.local/ns/a/sa/{caller}"
    rules = f"[{{from: [{{source: {{principals: ['{principal}']}}}}]}}]"
    spec = f"{{selector: {{matchLabels: {{app: {target}}}}}, rules: {rules}}}"
    return make("AuthorizationPolicy", f"{target}-{caller}", spec, "a")


def mesh_sources() -> Sources:
    names = ("front", "web", "cart", "stock")
    objects = [one for number, name in enumerate(names) for one in workload(name, number)]
    objects += workload("ledger", 9, "b")
    objects += [policy(*call) for call in CALLS]
    objects.append(
        make(
            "VirtualService",
            "r",
            "{hosts: [ledger], http: [{route: [{destination: {host: ledger, subset: v9}}]}]}",
            "b",
        )
    )
    mesh_world = world(*objects)
    refusing, fine = connection("web-0.a", lds=rejected()), connection("ledger-0.b", cds=FakeWatch())
    refusing.subscriptions = {
        url: dataclasses.replace(watch, last_error=HOSTILE) for url, watch in refusing.subscriptions.items()
    }
    for client in (refusing, fine):
        client.proxy_key = mesh_world.connect(client.proxy)
    key = NackKey(refusing.proxy_key, BY_SHORT_NAME["lds"])
    mesh_world.mesh.commit([(mesh_world.mesh.nacks, key, Nack("web-0.a", "LDS", HOSTILE, (ROUTE,)))])
    problem = Problem(code="refused", object=ROUTE, path="spec.http[0].route[0]", message=HOSTILE)
    return sources(mesh_world.mesh, refusing, fine, problems=[problem])


@pytest.fixture
def mesh() -> Sources:
    return mesh_sources()


@pytest.fixture
async def server(mesh: Sources, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestServer]:
    monkeypatch.setattr(stream, "SECONDS", 0.2)
    async with TestServer(application(mesh)) as running:
        yield running


@pytest.fixture
async def empty_server() -> AsyncIterator[TestServer]:
    async with TestServer(application(sources(world().mesh))) as running:
        yield running


@pytest.fixture
async def page(server: TestServer) -> AsyncIterator[Any]:
    async with playwright_api.async_playwright() as instance:
        browser = await instance.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = await browser.new_page(viewport={"width": 1400, "height": 900})
        errors: list[str] = []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        await opened.goto(str(server.make_url(routes.PATH)))
        await opened.wait_for_selector(".box")
        yield opened
        await browser.close()
        assert errors == []


async def headline(page: Any) -> str:
    text: str = await page.inner_text(".headline")
    return " ".join(text.split())


async def test_page_answers_first_and_leads_to_the_proxy(page: Any) -> None:
    assert "web-0.a rejects its listeners since" in await headline(page)
    assert f"{HOSTILE}; caused by VirtualService b/r." in await headline(page)  # Envoy's error, as text
    await page.click(".headline a")
    await page.wait_for_selector("h3:has-text('State by type')")
    assert HOSTILE in await page.inner_text("#view")  # as text
    assert await page.title() != "hacked"
    await page.click("#view a:has-text('web')")


async def test_rejection_is_attributed_to_the_object_that_causes_it(page: Any, mesh: Sources) -> None:
    changed = ChangedObject("update", NETWORKING, "VirtualService", "a", "later")
    mesh.changes.record(7, [changed], 1, 0, 2)
    times = {"seconds": 0.1, "seconds_99": 0.1, "seconds_50": 0.1}
    outcome = {"proxies": 2, "unchanged": 0, "acknowledged": 1, "nacked": 1, "disconnected": 0}
    mesh.changes.finish(7, types.SimpleNamespace(**outcome, **times))
    row = page.locator(".recent li", has_text="changed VirtualService a/later")
    await row.locator(".late a").wait_for()
    assert "1 proxy rejects it because of VirtualService b/r" in await row.inner_text()
    assert await row.locator(".bar .bad").is_visible()


async def test_older_change_that_causes_an_error_stays_on_the_first_page(page: Any, mesh: Sources) -> None:
    mesh.changes.record(1, [ChangedObject("add", NETWORKING, "VirtualService", "b", "r")], 1, 0, 0)
    for number in range(2, 14):
        changed = ChangedObject("add", NETWORKING, "VirtualService", "a", f"later-{number}")
        mesh.changes.record(number, [changed], 1, 0, 0)
    await page.locator(".recent li", has_text="added VirtualService b/r has an error").wait_for()
    assert await page.locator(".recent li").count() == 8
    await page.locator("#recent h2 a", has_text="5 more changes").click()
    await page.locator("#view .change").nth(12).wait_for()


async def test_change_of_an_endpoint_slice_names_endpoints(page: Any, mesh: Sources) -> None:
    states = {"10.0.0.1": ("absent", "not ready"), "10.0.0.2": ("ready", "absent"), "10.0.0.3": ("absent", "ready")}
    fields = tuple(FieldChange(f"endpoints[{address}]", *values) for address, values in states.items())
    fields += (FieldChange("endpoints[10.0.0.4].conditions.ready", "true", "false"),)
    changed = ChangedObject("update", "discovery.k8s.io", "EndpointSlice", "a", "web", fields=fields)
    mesh.changes.record(1, [changed], 0, 1, 0)
    row = page.locator(".recent li", has_text="EndpointSlice a/web")
    await row.wait_for()
    assert (
        "endpoint 10.0.0.1 added, not ready; 1 endpoint removed, 1 endpoint added, 1 endpoint changed"
        in await row.inner_text()
    )
    await page.goto(f"{page.url.partition('#')[0]}#/changes")
    lines = page.locator(".fields li")
    await lines.first.wait_for()
    assert [await line.inner_text() for line in await lines.all()] == [
        "endpoint 10.0.0.1 added, not ready",
        "endpoint 10.0.0.2 removed",
        "endpoint 10.0.0.3 added",
        "endpoint 10.0.0.4 is not ready any more",
    ]


async def test_service_begins_with_its_proxies_that_have_problems(page: Any) -> None:
    await page.goto(f"{page.url.partition('#')[0]}#/service/a/web.a.svc.cluster.local")
    first = page.locator("#detail .verdict").first
    await first.wait_for()
    assert re.search(r"web-0\.a\s+rejects its listeners since", await first.inner_text())
    assert await page.locator("#detail .verdict").count() == 1
    await first.locator("a:has-text('web-0.a')").click()
    await page.wait_for_selector("h3:has-text('State by type')")


async def test_service_without_a_connected_sidecar_says_so(page: Any) -> None:
    await page.goto(f"{page.url.partition('#')[0]}#/service/a/stock.a.svc.cluster.local")
    sentence = page.locator("#detail p", has_text="Plain-text requests")
    await sentence.wait_for()
    text = await sentence.inner_text()
    assert "Plain-text requests get 403: mutual TLS is PERMISSIVE by default, but AuthorizationPolicy" in text
    assert "No sidecar of it is connected" in text


async def test_change_shows_the_old_and_the_new_value(page: Any, mesh: Sources) -> None:
    fields = (FieldChange("spec.http[0].timeout", "5s", "1s"),)
    changed = ChangedObject("update", NETWORKING, "VirtualService", "b", "r", "mesh.yaml", fields=fields)
    mesh.changes.record(1, [changed], 1, 0, 0)
    await page.wait_for_selector("#recent .field")
    assert (await page.inner_text("#recent .field")).strip() == "spec.http[0].timeout: 5s → 1s"


async def test_service_names_callers_with_the_policies_that_admit_them(page: Any) -> None:
    await page.goto(f"{page.url.partition('#')[0]}#/service/a/web.a.svc.cluster.local")
    sentence = page.locator("#detail section", has_text="Who may call it").locator("p").first
    await sentence.wait_for()
    assert await sentence.inner_text() == "May be called by front in a (AuthorizationPolicy a/web-front)."


async def test_namespace_service_and_back(page: Any) -> None:
    await page.click("[data-place='namespace a']")
    await page.wait_for_selector("[data-place^='service a/cart']")
    assert "bad" in await page.get_attribute("[data-place^='service a/web']", "class")
    await page.click("[data-place^='service a/cart']")
    await page.wait_for_selector("#detail h2:has-text('cart')")
    await page.wait_for_selector("#detail:has-text('web in a')")
    url = page.url
    await page.go_back()
    await page.wait_for_selector("#detail h2:has-text('Namespace a')")
    await page.goto("about:blank")
    await page.goto(url)
    await page.wait_for_selector("#detail h2:has-text('cart')")


async def test_search_opens_the_namespace_of_a_service_and_says_if_there_is_none(page: Any) -> None:
    await page.keyboard.press("/")
    await page.keyboard.type("ledger")
    await page.wait_for_selector("#results a")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("[data-place^='service b/ledger'].chosen")
    await page.wait_for_selector("text=no DestinationRule has the subset v9")
    await page.fill("#query", "nosuch")
    await page.wait_for_selector("#results:has-text('No match for “nosuch”.')")


async def test_views_are_reached_with_the_keyboard_alone(page: Any) -> None:
    await page.focus("[data-place='namespace b']")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("[data-place^='service b/ledger']")
    await page.focus("[data-place^='service b/ledger']")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#detail h2:has-text('ledger')")
    await page.keyboard.press("Escape")
    await page.wait_for_selector("#detail h2:has-text('Namespace b')")


async def test_problem_leads_to_its_object_with_the_line_marked(page: Any) -> None:
    await page.click("#tiles a:has-text('error')")
    await page.click(".items a:has-text('VirtualService b/r')")
    marked = page.locator(".listing .marked")
    assert HOSTILE in await marked.inner_text()
    assert "destination" in await marked.inner_text()


async def test_lines_that_cause_a_failure_are_marked(page: Any, mesh: Sources) -> None:
    script = "function envoy_on_response(handle) handle:headers():add('x' 'y') end"
    lua = f'patch: {{operation: MERGE, value: {{inline_string: "{script}"}}}}'
    message = 'p rejected RDS: script load error: [string "function envoy_on_response(handle) handle:head..."]:1: no'
    route = f"{{hosts: [web], http: [{{{FAULT}, route: [{{destination: {{host: web}}}}]}}]}}"
    objects = (
        make("VirtualService", "f", route, "c"),
        make("EnvoyFilter", "s", f"{{configPatches: [{{applyTo: VIRTUAL_HOST, {lua}}}]}}", "c"),
        endpoint_slice("web", at("10.0.8.1"), at("10.0.8.2", conditions="{ready: false}")),
    )
    problem = Problem(code="refused", object=ObjectRef(GroupKind(NETWORKING, "EnvoyFilter"), "c", "s"), message=message)
    pages = sources(world(*objects).mesh, problems=[problem])
    lines = []
    async with TestServer(application(pages)) as server:
        await page.goto(str(server.make_url(routes.PATH)))
        for kind in ("networking.istio.io/VirtualService/c/f", "networking.istio.io/EnvoyFilter/c/s",
                     "discovery.k8s.io/EndpointSlice/a/web-0"):  # fmt: skip
            await page.evaluate("hash => { location.hash = hash; }", f"#/object/{kind}")
            await page.locator(f".card[data-place='object/{kind}'] .marked").wait_for()
            lines.append(await page.locator(".marked").inner_text())
    assert [line.split("←")[0].strip()[:14] for line in lines] == ["abort:", "inline_string:", "ready: false"]


async def test_object_opens_at_its_title_and_the_state_of_the_mesh_takes_one_line(page: Any) -> None:
    await page.set_viewport_size({"width": 1400, "height": 300})
    await page.evaluate("location.hash = '#/object/networking.istio.io/VirtualService/b/r'")
    await page.wait_for_selector(".listing .marked")
    assert await page.evaluate("document.querySelector('#view h2').getBoundingClientRect().top") >= 0
    assert await page.evaluate("document.querySelector('#answer').getBoundingClientRect().height") < 40
    assert not await page.is_visible(".also, #recent")


async def test_lines_of_the_graph_never_cross_boxes(page: Any) -> None:
    await page.click("[data-place='namespace a']")
    await page.wait_for_selector("[data-place^='service a/stock']")
    crossings = await page.evaluate("""() => {
      const origin = document.querySelector('.boxes').getBoundingClientRect();
      const boxes = [...document.querySelectorAll('.box')].map((box) => [box.dataset.place, box.getBoundingClientRect()]);
      const found = [];
      for (const edge of document.querySelectorAll('.edge')) {
        const line = edge.querySelector('.line'), length = line.getTotalLength();
        for (let at = 0; at <= length; at += 3) {
          const point = line.getPointAtLength(at), x = point.x + origin.left, y = point.y + origin.top;
          for (const [place, box] of boxes) {
            if (x > box.left + 2 && x < box.right - 2 && y > box.top + 2 && y < box.bottom - 2) found.push(`${edge.ends} crosses ${place}`);
          }
        }
      }
      return [document.querySelectorAll('.edge').length, ...new Set(found)];
    }""")
    assert crossings == [len(CALLS)]


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("view", ["", "#/namespace/a", "#/service/a/web.a.svc.cluster.local", "#/proxies", "#/load"])
async def test_no_view_scrolls_sideways(page: Any, width: int, view: str) -> None:
    await page.set_viewport_size({"width": width, "height": 800})
    await page.evaluate(f"location.hash = '{view}'")
    await page.wait_for_selector("#view h2", state="attached")
    await page.wait_for_selector(".loading", state="detached")
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


CUT = """() => [...document.querySelectorAll('body *')].filter((one) => {
  const { overflowX, clipPath } = getComputedStyle(one);
  return one.getClientRects().length && clipPath === 'none' && overflowX !== 'visible' && one.scrollWidth > one.clientWidth + 1;
}).map((one) => one.textContent)"""


@pytest.mark.parametrize("view", ["", "#/changes", "#/service/a/web.a.svc.cluster.local", "#/proxies"])
async def test_nothing_is_cut_off_on_a_phone(page: Any, mesh: Sources, view: str) -> None:
    await page.set_viewport_size({"width": 390, "height": 800})
    name = "a-virtual-service-with-a-long-name"
    mesh.changes.record(7, [ChangedObject("update", NETWORKING, "VirtualService", "b", name)], 1, 0, 0)
    await page.evaluate(f"location.hash = '{view}'")
    await page.wait_for_selector("#view h2", state="attached")
    await page.wait_for_selector(".loading", state="detached")
    assert await page.evaluate(CUT) == []


CONTRAST = """() => {
  const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)).reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const back = light(getComputedStyle(document.querySelector('.picture')).backgroundColor);
  return [...document.querySelectorAll('.edge .line')].map((line) => [light(getComputedStyle(line).stroke), Number(getComputedStyle(line).opacity)])
    .map(([front, opacity]) => opacity * (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_lines_of_the_graph_contrast_with_the_background(page: Any, scheme: Any) -> None:
    await page.emulate_media(color_scheme=scheme)
    await page.goto(f"{page.url.partition('#')[0]}#/service/a/web.a.svc.cluster.local")
    await page.wait_for_selector(".edge.faint")
    await page.wait_for_timeout(300)
    assert min(await page.evaluate(CONTRAST)) >= 3


async def test_details_of_a_box_come_into_sight_on_a_phone(page: Any) -> None:
    await page.set_viewport_size({"width": 390, "height": 600})
    await page.click("[data-place='namespace b']")
    await page.wait_for_selector("#detail h3:has-text('1 service')")
    await page.wait_for_timeout(200)
    top = await page.evaluate("document.querySelector('#detail').getBoundingClientRect().top")
    assert 0 <= top < 300


@pytest.mark.parametrize("view", ["#/proxies", "#/proxy/"], ids=["the list of proxies", "the resources of a proxy"])
async def test_filter_holds_what_is_typed_slowly(page: Any, view: str) -> None:
    if "proxy/" in view:
        await page.click(".headline a")
        await page.click("nav[aria-label=Resources] a:has-text('listeners')")
    else:
        await page.evaluate(f"location.hash = '{view}'")
    field = page.locator("#view input[type=search]")
    await field.click()
    await page.keyboard.type("payments", delay=260)
    await page.wait_for_selector("#view .none")
    assert await field.input_value() == "payments"


async def test_checked_access_and_its_inputs_outlive_refreshes(page: Any, mesh: Sources) -> None:
    await page.evaluate("location.hash = '#/service/a/front.a.svc.cluster.local'")
    await page.click("summary:has-text('Check access')")
    await page.fill("#try-account", "a/front")
    await page.click("button:has-text('Check access')")
    await page.wait_for_selector("[role=status]:has-text('These are the policies of')")
    await page.focus("#try-method")
    await refresh(page, mesh, "a", "front")
    assert "These are the policies of" in await page.inner_text("#detail [role=status]")
    assert await page.input_value("#try-account") == "a/front"
    assert await page.evaluate("document.activeElement.id") == "try-method"


async def test_result_of_checked_access_is_in_sight(page: Any) -> None:
    await page.set_viewport_size({"width": 1400, "height": 400})
    await page.evaluate("location.hash = '#/service/a/front.a.svc.cluster.local'")
    await page.click("summary:has-text('Check access')")
    await page.click("button:has-text('Check access')")
    result = page.locator("#detail [role=status]:has-text('These are the policies of')")
    await result.wait_for()
    assert await result.evaluate("e => e.getBoundingClientRect().bottom <= innerHeight")


async def test_selected_text_outlives_refreshes(page: Any, mesh: Sources) -> None:
    await page.evaluate("location.hash = '#/service/a/web.a.svc.cluster.local'")
    await page.wait_for_selector("#detail h3:has-text('Who may call it')")
    await page.dblclick("#detail h2", position={"x": 8, "y": 8})
    await refresh(page, mesh, "a", "web")
    assert await page.evaluate("getSelection().toString()") == "web"


async def refresh(page: Any, mesh: Sources, namespace: str, name: str) -> None:
    """Record a change of a service, and wait until its view shows the change."""
    mesh.changes.record(7, [ChangedObject("update", "", "Service", namespace, name, "refreshed.yaml")], 1, 0, 0)
    await page.wait_for_selector("#detail:has-text('refreshed.yaml')", timeout=10_000)


async def test_skip_link_leads_to_the_content_of_the_same_view(page: Any) -> None:
    await page.click("[data-place='namespace b']")
    await page.wait_for_selector("#detail h2:has-text('Namespace b')")
    url = page.url
    await page.focus(".skip")
    await page.keyboard.press("Enter")
    assert page.url == url
    assert await page.evaluate("document.activeElement.textContent") == "Namespace b"


async def test_view_that_is_opened_has_the_focus(page: Any) -> None:
    await page.keyboard.press("/")
    await page.keyboard.type("ledger")
    await page.wait_for_selector("#results a")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#detail h2:focus:has-text('ledger')")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.querySelector('#detail').contains(document.activeElement)")


async def test_banner_says_how_old_the_page_is(page: Any, server: TestServer) -> None:
    assert not await page.is_visible("#banner")
    await server.close()
    await page.wait_for_selector("#banner:has-text('The control plane is not responding. What you see is')")


async def hold(page: Any, text: str) -> asyncio.Event:
    """Delay the answers to requests that contain a text until the returned event is set."""
    release = asyncio.Event()

    async def wait(route: Any) -> None:
        await release.wait()
        await route.continue_()

    await page.route(lambda url: text in url, wait)
    return release


async def test_view_shows_its_name_at_once_and_never_the_answer_of_another(page: Any) -> None:
    await page.evaluate("location.hash = '#/service/a/front.a.svc.cluster.local'")
    await page.wait_for_selector("#detail summary:has-text('Check access')")
    late = await hold(page, "service?namespace=a&host=cart")
    await page.evaluate("location.hash = '#/service/a/cart.a.svc.cluster.local'")
    await page.wait_for_selector("#detail h2:has-text('cart')")
    assert await page.inner_text("#detail .loading") == "Loading …"
    assert not await page.is_visible("#detail form")
    await page.evaluate("location.hash = '#/service/a/stock.a.svc.cluster.local'")
    await page.wait_for_selector("#detail p:has-text('stock.a.svc.cluster.local')")
    async with page.expect_response(lambda response: "host=cart" in response.url):
        late.set()
    await page.wait_for_timeout(300)
    assert await page.inner_text("#detail h2") == "stock"
    assert "stock.a.svc.cluster.local" in await page.inner_text("#detail")


async def test_list_drops_the_answer_to_an_earlier_filter(page: Any) -> None:
    late = await hold(page, "proxies?text=ledger")
    await page.evaluate("location.hash = '#/proxies?text=ledger'")
    await page.wait_for_selector("#view h2:has-text('Proxies')")
    await page.evaluate("location.hash = '#/proxies?text=web'")
    await page.wait_for_selector("#view td:has-text('web-0')")
    async with page.expect_response(lambda response: "text=ledger" in response.url):
        late.set()
    await page.wait_for_timeout(300)
    assert "ledger-0" not in await page.inner_text("#view table")


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("#/service/a/wbe.a.svc.cluster.local", "Did you mean:\n\na/web"),
        ("#/service/a", "The address is incomplete: it is #/service/NAMESPACE/HOST."),
        ("#/object/networking.istio.io/VirtualService/b/rr", "Did you mean:\n\nb/r"),
        ("#/proxy/web-1.a-7", "Did you mean:\n\nweb-0.a"),
        ("#/edge", "The address is incomplete"),
        ("#/nosuch", "There is no view “nosuch”."),
        ("#/namespace/aa", "There is no namespace aa with services or proxies."),
    ],
)
async def test_address_that_leads_nowhere_says_so(page: Any, view: str, text: str) -> None:
    await page.evaluate(f"location.hash = '{view}'")
    await page.wait_for_selector("#view h2:text-is('Not found') ~ p:has-text('Views')")
    shown = await page.inner_text("#view")
    assert text in shown
    assert "undefined" not in shown


async def test_empty_mesh_has_the_first_steps(page: Any, empty_server: TestServer) -> None:
    await page.goto(str(empty_server.make_url(routes.PATH)))
    await page.wait_for_selector("#graph h2:has-text('Three steps to a mesh')")
    await page.wait_for_selector("#detail .unseen", state="attached")
    assert not await page.is_visible("#detail")
    assert await headline(page) == "There are no services and no proxies yet."
