"""An HTTP server with prepared answers, which records requests."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable
from typing import Any


class FixedPages(http.server.ThreadingHTTPServer):
    """Answers each request with what `answer` returns for its path and query, or with the status 404."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], str | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.requests = answer, list[tuple[str, str]]()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FixedPages

    def do_GET(self) -> None:
        self.server.requests.append((self.command, self.path))
        text = self.server.answer(self.path)
        self.send_response(404 if text is None else 200)
        body = (text or "").encode()
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None: ...
