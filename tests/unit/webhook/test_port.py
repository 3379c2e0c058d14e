"""The webhook port of a control plane: TLS, and sources and updates of the injector configuration."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import pathlib
import ssl
from typing import Any

import aiohttp
import pytest
import yaml

from ca.signer import Signer
from pilot.bootstrap import ControlPlane
from pilot.lib.flags import FlagError
from pilot.settings.parse import load
from testing.control_planes.secure_plane import issue
from testing.kube.webhooks import config_texts, pod, review
from testing.security.certificates import root
from tests.unit.bootstrap.test_control_plane import Running, running, until
from webhook.defaults.injector_config import default_values


async def post_review(env: Running, path: str = "/inject", client: str = "") -> tuple[int, Any]:
    """Send a review, with the client certificate in a file if there is one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client:
        context.load_cert_chain(client)
    connector = aiohttp.TCPConnector(ssl=context)
    url = f"https://127.0.0.1:{env.plane.ports['webhooks'].number}{path}"
    async with aiohttp.ClientSession(connector=connector) as session, session.post(url, json=review(pod())) as response:
        text = await response.text()
        return response.status, json.loads(text) if response.status == 200 and text else text


def image_tag(env: Running) -> str | None:
    assert env.plane.webhooks.injector is not None
    config = env.plane.webhooks.injector.config
    return None if config is None else config.value("global", "tag")


async def test_validation_without_an_injector_configuration(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path, injectionDir=str(tmp_path / "none")) as env:
        assert (await post_review(env))[0] == 404
        status, body = await post_review(env, "/validate")
        assert status == 200
        assert "response" in body
        assert (await post_review(env, "/ready"))[0] == 200
        assert (await env.get("/debug/inject"))[0] == 404


async def test_requests_without_the_client_certificate_of_the_api_server_are_not_read(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority, other = root(1, now=now), root(2, now=now)

    def certificate(issuer: Signer, name: str) -> str:
        credential = issue(issuer, name)
        (tmp_path / name).write_bytes(credential.key + credential.chain)
        return str(tmp_path / name)

    api_server, tenant = certificate(authority, "apiserver"), certificate(other, "tenant")
    roots = tmp_path / "roots" / "ca.crt"
    roots.parent.mkdir()
    roots.write_bytes(authority.roots_pem)
    environ = {"PILOT_WEBHOOK_CLIENT_CA_FILE": str(roots)}
    async with running(tmp_path / "roots", environ, injectionDir=str(tmp_path / "none")) as env:
        assert (await post_review(env, "/validate", api_server))[0] == 200
        for client in ("", tenant):
            for path in ("/validate", "/inject", "/ready"):
                with pytest.raises(aiohttp.ClientError):
                    await post_review(env, path, client)
        roots.write_bytes(other.roots_pem)

        async def is_rejected(client: str) -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                return (await post_review(env, "/validate", client))[0] != 200
            return True

        async with asyncio.timeout(30):
            while not await is_rejected(api_server):
                await asyncio.sleep(0.01)
        assert not await is_rejected(tenant)
        roots.write_bytes(b"")
        await until(lambda: any("cannot reload the server certificate" in text for text in caplog.messages))
        assert await is_rejected("")
        assert not await is_rejected(tenant)


def test_client_certificates_require_the_tls_port() -> None:
    settings = load(["--configDir=config", "--httpsAddr="], {"PILOT_WEBHOOK_CLIENT_CA_FILE": "ca.crt"}).settings
    with pytest.raises(FlagError, match=r"^PILOT_WEBHOOK_CLIENT_CA_FILE requires --httpsAddr: "):
        ControlPlane(settings)


async def test_configuration_directory_is_watched_and_invalid_files_ignored(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "inject"
    folder.mkdir()
    config, values = config_texts()
    (folder / "config").write_text(config)
    (folder / "values").write_text(values)
    mesh = tmp_path / "mesh"
    mesh.mkdir()
    async with running(mesh, injectionDir=str(folder)) as env:
        assert (await post_review(env))[1]["response"]["allowed"]
        assert image_tag(env) == default_values()["global"]["tag"]
        (folder / "config").write_text(config.replace("{{", "{{ nothing", 1))
        (folder / "values").write_text("[]")
        (folder / "values").write_text(config_texts(**{"global": {"tag": "2"}})[1])
        (folder / "config").write_text(config)
        await until(lambda: image_tag(env) == "2")
        assert (await post_review(env))[1]["response"]["allowed"]


async def test_config_map_is_used_without_a_directory(tmp_path: pathlib.Path) -> None:
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
    async with running(tmp_path, injectionDir=str(tmp_path / "none")) as env:
        assert image_tag(env) == "1"
        status, page = await env.get("/debug/inject")
        assert status == 200
        assert "istio-proxy" in json.loads(page)["sidecar"]
        assert (await post_review(env))[1]["response"]["allowed"]
        idle = env.clock.waiting
        write("3")
        await until(lambda: env.clock.waiting > idle)
        env.clock.advance(1.0)
        await until(lambda: image_tag(env) == "3")


async def test_other_config_maps_are_ignored(tmp_path: pathlib.Path) -> None:
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

    loaded_tags: list[str | None] = []
    injector("1")
    async with running(tmp_path, injectionDir=str(tmp_path / "none")) as env:
        assert env.plane.webhooks.injector is not None
        env.plane.webhooks.injector.on_load.append(lambda: loaded_tags.append(image_tag(env)))
        for change in (lambda: write("other", {"a": "b"}), lambda: injector("2")):
            idle = env.clock.waiting
            change()
            await until(lambda: env.clock.waiting > idle)  # noqa: B023
            env.clock.advance(1.0)
        await until(lambda: image_tag(env) == "2" and bool(loaded_tags))
        assert loaded_tags == ["2"]
