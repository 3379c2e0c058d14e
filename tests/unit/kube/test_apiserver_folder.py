"""Synchronisation of a folder's files into the test API server."""

from __future__ import annotations

import json
import pathlib

import yaml

from testing.apiserver.definitions import definitions
from testing.apiserver.folder import Arguments, Folder, read_arguments
from testing.apiserver.server import ApiServer

ENTRY = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{name: {name}, namespace: shop, creationTimestamp: "2024-01-02T03:04:05Z"}}
spec: {{hosts: [{host}]}}
---
"""


def hosts(server: ApiServer) -> dict[str, str]:
    entries = server.store.collection(("networking.istio.io", "serviceentries")).objects
    return {name: stored.plain["spec"]["hosts"][0] for (_, name), stored in entries.items()}


def folder_server(path: pathlib.Path) -> tuple[ApiServer, Folder]:
    server = ApiServer()
    for plain in definitions():
        server.put(plain)
    return server, Folder(path, server)


def test_file_changes_are_applied_to_the_server(tmp_path: pathlib.Path) -> None:
    server, folder = folder_server(tmp_path)
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", host="a.com") + ENTRY.format(name="b", host="b.com"))
    (tmp_path / "c.yml").write_text(ENTRY.format(name="c", host="c.com"))
    assert folder.load()
    assert hosts(server) == {"a": "a.com", "b": "b.com", "c": "c.com"}
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="b", host="other.com"))
    (tmp_path / "c.yml").unlink()
    assert folder.load()
    assert hosts(server) == {"b": "other.com"}


def test_items_of_a_list_are_applied_to_the_server(tmp_path: pathlib.Path) -> None:
    server, folder = folder_server(tmp_path)
    items = [yaml.safe_load(ENTRY.format(name=name, host=f"{name}.com").replace("---", "")) for name in "ab"]
    (tmp_path / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert folder.load()
    assert hosts(server) == {"a": "a.com", "b": "b.com"}


def test_unchanged_objects_are_not_written(tmp_path: pathlib.Path) -> None:
    server, folder = folder_server(tmp_path)
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", host="a.com") + ENTRY.format(name="b", host="b.com"))
    folder.load()
    revision = server.store.revision
    assert not folder.load()
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", host="a.com") + ENTRY.format(name="b", host="c.com"))
    assert folder.load()
    assert server.store.revision == revision + 1


def test_creation_timestamp_is_taken_from_the_file(tmp_path: pathlib.Path) -> None:
    server, folder = folder_server(tmp_path)
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", host="a.com"))
    folder.load()
    stored = server.get("networking.istio.io", "serviceentries", "shop", "a")
    assert stored is not None
    assert stored["metadata"]["creationTimestamp"] == "2024-01-02T03:04:05Z"


def test_config_dir_is_removed_from_the_command() -> None:
    command = ["pilot-discovery", "discovery", "--configDir", "/x", "--grpcAddr", "127.0.0.1:1"]
    assert read_arguments(command) == Arguments(
        ["pilot-discovery", "discovery", "--grpcAddr", "127.0.0.1:1"], pathlib.Path("/x")
    )
