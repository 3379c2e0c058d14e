"""The port of the webhooks in a whole control plane: TLS, where the injector's configuration comes from, and how it changes."""

from __future__ import annotations

import json
import pathlib
import ssl
from typing import Any

import aiohttp
import yaml

from testing.kube.webhooks import config_texts, pod, review
from tests.unit.bootstrap.test_control_plane import Running, running, until


async def ask(it: Running, path: str = "/inject") -> tuple[int, Any]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=context)
    url = f"https://127.0.0.1:{it.plane.ports['webhooks'].number}{path}"
    async with aiohttp.ClientSession(connector=connector) as session, session.post(url, json=review(pod())) as response:
        text = await response.text()
        return response.status, json.loads(text) if response.status == 200 and text else text


def images(it: Running) -> str | None:
    assert it.plane.webhooks.injector is not None
    config = it.plane.webhooks.injector.config
    return None if config is None else config.value("global", "tag")


async def test_without_a_configuration_there_is_no_injection_but_validation(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path, injectionDir=str(tmp_path / "none")) as it:
        assert (await ask(it))[0] == 404
        status, answer = await ask(it, "/validate")
        assert status == 200
        assert "response" in answer
        assert (await ask(it, "/ready"))[0] == 200
        assert (await it.get("/debug/inject"))[0] == 404


async def test_a_folder_is_followed_and_what_is_wrong_changes_nothing(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "inject"
    folder.mkdir()
    config, values = config_texts()
    (folder / "config").write_text(config)
    (folder / "values").write_text(values)
    mesh = tmp_path / "mesh"
    mesh.mkdir()
    async with running(mesh, injectionDir=str(folder)) as it:
        assert (await ask(it))[1]["response"]["allowed"]
        assert images(it) == "latest"
        (folder / "config").write_text(config.replace("{{", "{{ nothing", 1))
        (folder / "values").write_text("[]")
        (folder / "values").write_text(config_texts(**{"global": {"tag": "2"}})[1])
        (folder / "config").write_text(config)
        await until(lambda: images(it) == "2")
        assert (await ask(it))[1]["response"]["allowed"]


async def test_a_config_map_is_taken_where_there_is_no_folder_and_followed(tmp_path: pathlib.Path) -> None:
    def write(tag: str) -> None:
        config, values = config_texts(**{"global": {"tag": tag}})
        metadata = {"name": "istio-sidecar-injector", "namespace": "istio-system"}
        (tmp_path / "map.yaml").write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": metadata,
                    "data": {"config": config, "values": values},
                }
            )
        )

    write("1")
    async with running(tmp_path, injectionDir=str(tmp_path / "none")) as it:
        assert images(it) == "1"
        status, shown = await it.get("/debug/inject")
        assert status == 200
        assert "istio-proxy" in json.loads(shown)["sidecar"]
        assert (await ask(it))[1]["response"]["allowed"]
        idle = it.clock.waiting
        write("3")
        await until(lambda: it.clock.waiting > idle)
        it.clock.advance(1.0)
        await until(lambda: images(it) == "3")


async def test_another_config_map_is_not_taken_for_the_injectors(tmp_path: pathlib.Path) -> None:
    def write(name: str, data: dict[str, str]) -> None:
        metadata = {"name": name, "namespace": "istio-system"}
        (tmp_path / f"{name}.yaml").write_text(
            yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        )

    def injector(tag: str) -> None:
        write(
            "istio-sidecar-injector",
            dict(zip(("config", "values"), config_texts(**{"global": {"tag": tag}}), strict=True)),
        )

    taken: list[str | None] = []
    injector("1")
    async with running(tmp_path, injectionDir=str(tmp_path / "none")) as it:
        assert it.plane.webhooks.injector is not None
        it.plane.webhooks.injector.on_load.append(lambda: taken.append(images(it)))
        for change in (lambda: write("other", {"a": "b"}), lambda: injector("2")):
            idle = it.clock.waiting
            change()
            await until(lambda: it.clock.waiting > idle)  # noqa: B023
            it.clock.advance(1.0)
        await until(lambda: images(it) == "2" and bool(taken))
        assert taken == ["2"]
