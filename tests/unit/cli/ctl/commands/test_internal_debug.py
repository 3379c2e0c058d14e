"""Debug pages by pilotctl internal-debug."""

from __future__ import annotations

import pytest
from click.shell_completion import CompletionItem, ShellComplete

from pilot.cli.ctl.client import CommandError, PageClient
from pilot.cli.pilotctl import main, pilotctl

Calls = list[tuple[str, dict[str, str]]]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Requests to a control plane that responds with "text"."""
    calls: Calls = []

    def text(_: PageClient, path: str, **query: str) -> str:
        calls.append((path, query))
        return "text\n\n"

    monkeypatch.setattr(PageClient, "text", text)
    monkeypatch.setattr(PageClient, "get", lambda _, page: ["/debug/a", "/debug/b"])
    return calls


@pytest.mark.parametrize(
    ("page", "path", "query"),
    [
        ("syncz", "debug/syncz", {}),
        ("/debug/syncz", "debug/syncz", {}),
        ("debug/config_dump?proxyID=web", "debug/config_dump", {"proxyID": "web"}),
        ("x?empty=&a=b%20c", "debug/x", {"empty": "", "a": "b c"}),
    ],
)
def test_page_request_keeps_its_query(
    requests: Calls, capsys: pytest.CaptureFixture[str], page: str, path: str, query: dict[str, str]
) -> None:
    assert main(["internal-debug", page]) == 0
    assert (capsys.readouterr().out, requests) == ("text\n", [(path, query)])


def test_pages_are_listed_and_completed(
    requests: Calls, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def completions(incomplete: str) -> list[str]:
        items: list[CompletionItem] = ShellComplete(pilotctl, {}, "pilotctl", "X").get_completions(
            ["internal-debug"], incomplete
        )
        return [item.value for item in items]

    assert main(["internal-debug"]) == 0
    assert (capsys.readouterr().out, requests) == ("/debug/a\n/debug/b\n", [])
    assert (completions("/debug/"), completions("/debug/b"), completions("x")) == (
        ["/debug/a", "/debug/b"],
        ["/debug/b"],
        [],
    )

    def fail(*_: object) -> None:
        raise CommandError("nobody answers")

    monkeypatch.setattr(PageClient, "get", fail)
    assert completions("") == []
