"""A folder's files as objects of the test's API server: what changes, comes and goes there does here."""

from __future__ import annotations

import pathlib

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


def make(path: pathlib.Path) -> tuple[ApiServer, Folder]:
    server = ApiServer()
    for plain in definitions():
        server.put(plain)
    return server, Folder(path, server)


def test_what_changes_comes_and_goes_in_files_does_so_at_the_server(tmp_path: pathlib.Path) -> None:
    server, folder = make(tmp_path)
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", host="a.com") + ENTRY.format(name="b", host="b.com"))
    (tmp_path / "c.yml").write_text(ENTRY.format(name="c", host="c.com"))
    assert folder.load()
    assert hosts(server) == {"a": "a.com", "b": "b.com", "c": "c.com"}
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="b", host="other.com"))
    (tmp_path / "c.yml").unlink()
    assert folder.load()
    assert hosts(server) == {"b": "other.com"}


def test_only_what_changed_is_written(tmp_path: pathlib.Path) -> None:
    server, folder = make(tmp_path)
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", host="a.com") + ENTRY.format(name="b", host="b.com"))
    folder.load()
    revision = server.store.revision
    assert not folder.load()
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", host="a.com") + ENTRY.format(name="b", host="c.com"))
    assert folder.load()
    assert server.store.revision == revision + 1


def test_objects_keep_the_age_that_files_say(tmp_path: pathlib.Path) -> None:
    server, folder = make(tmp_path)
    (tmp_path / "a.yaml").write_text(ENTRY.format(name="a", host="a.com"))
    folder.load()
    stored = server.get("networking.istio.io", "serviceentries", "shop", "a")
    assert stored is not None
    assert stored["metadata"]["creationTimestamp"] == "2024-01-02T03:04:05Z"


def test_the_folder_is_taken_out_of_the_command() -> None:
    words = ["pilot-discovery", "discovery", "--configDir", "/x", "--grpcAddr", "127.0.0.1:1"]
    assert read_arguments(words) == Arguments(
        ["pilot-discovery", "discovery", "--grpcAddr", "127.0.0.1:1"], pathlib.Path("/x")
    )
