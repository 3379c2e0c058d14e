"""A small HTTP server of the shop. Usage: python server.py NAME VERSION PORT."""

from __future__ import annotations

import http.server
import json
import sys
import time

NAME, VERSION, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
STARS = {"v1": None, "v2": 5}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    request_count = 0

    def do_GET(self) -> None:
        Handler.request_count += 1
        if NAME == "catalog" and self.path.endswith("/slow"):
            time.sleep(3)
        if NAME == "catalog" and Handler.request_count % 2:
            self.respond(503, {"error": "simulated failure of the catalog"})
        else:
            self.respond(200, self.body())

    def body(self) -> dict[str, object]:
        fields: dict[str, object] = {"service": NAME, "version": VERSION, "path": self.path}
        if NAME == "reviews":
            fields |= {"review": "Fits well, would buy again", "stars": STARS.get(VERSION)}
        if NAME == "catalog":
            fields |= {"items": ["teapot", "kettle", "cup"]}
        if NAME == "storefront":
            fields |= {"welcome": "Try /reviews, /catalog and /home"}
        return fields

    def respond(self, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("x-served-by", f"{NAME}-{VERSION}")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
