"""A real HTTP server on loopback that speaks enough of the OpenAI API, and fails as it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


class FakeServer:
    """Answers chat requests with `reply`; each entry of `faults` spoils one request first.

    Kinds of servers differ in `models`, their list of models (None: status 404), and in what they `refuse`.
    """

    models: ClassVar[dict[str, Any] | None] = {
        "object": "list",
        "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "x"}],
    }

    def __init__(self, reply: str = "hello", faults: list[Any] | None = None, vllm: bool = False):
        self.reply, self.faults, self.vllm = reply, faults or [], vllm
        self.requests: list[dict[str, Any]] = []
        self.continuations: Callable[[dict[str, Any]], list[tuple[list[int], str, str]]] | None = None
        self.context: int | None = None
        self.hosts: set[str] = set()
        self.woken = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def send(self, status, body):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                if self.path == "/version" and server.vllm:
                    self.send(200, {"version": "test"})
                elif server.path(self.path) == "/v1/models" and server.models is not None:
                    server.hosts.add(self.headers["Host"])
                    found = json.loads(json.dumps(server.models))
                    if server.context is not None:
                        found["data"][0]["max_model_len"] = server.context
                    self.send(200, found)
                else:
                    self.send(404, {})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/tokenize":
                    text = body.get("prompt") or "".join(m["content"] for m in body["messages"])
                    self.send(200, {"tokens": [ord(c) for c in text]})
                    return
                server.requests.append(body)
                if server.faults:
                    fault = server.faults.pop(0)
                    if fault == "silent":  # a connection that is half open
                        server.woken.wait(30)
                        self.close_connection = True
                        return
                    if fault == "close":
                        self.connection.close()
                        self.close_connection = True
                        return
                    self.send(*fault)
                    return
                refused = server.refuse(body)
                self.send(*(refused or (200, server.answer(self.path, body))))

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def path(self, given: str) -> str:
        """Return the path of a request, which a proxy gets with its host."""
        return "/" + given.split("/", 3)[3] if given.startswith("http") else given

    def refuse(self, body: dict[str, Any]) -> tuple[int, Any] | None:
        """Return the status and body of a refusal, or None."""
        return None

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a right reply."""
        common = {
            "id": "1",
            "created": 0,
            "model": "m",
            "usage": {"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15},
        }
        if path.endswith("/chat/completions"):
            message = {"role": "assistant", "content": self.reply}
            choices = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(body.get("n", 1))]
            return common | {"object": "chat.completion", "choices": choices}
        choices = [
            {"index": i, "text": text, "finish_reason": reason, "token_ids": ids,
             "logprobs": {"token_logprobs": [-0.5] * len(ids), "tokens": [], "top_logprobs": [], "text_offset": []}}
            for i, (ids, text, reason) in enumerate(self.continuations(body))
        ]  # fmt: skip
        return common | {"object": "text_completion", "choices": choices}


@contextmanager
def serving(kind: type[FakeServer] = FakeServer, **options: Any):
    """Run a fake server."""
    server = kind(**options)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.woken.set()
        server.http.shutdown()
        thread.join()
        server.http.server_close()
