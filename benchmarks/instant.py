"""An OpenAI-compatible server that answers at once with a new program each time: what is measured is what asks it.

`python -m benchmarks.instant PORT` serves on loopback until it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any

NUMBERS = itertools.count(1)


def program() -> str:
    """Return a program that no other reply holds."""
    number = next(NUMBERS)
    return f"# EVOLVE-BLOCK-START\ndef f(x):\n    return (x * {number % 97} + {number}) % 101\n# EVOLVE-BLOCK-END"


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a reply: one program for each choice, two where the prompt asks for two."""
    asked = str(body["messages"])
    blocks = 2 if "### Solution 2" in asked else 1
    choices = []
    for index in range(body.get("n") or 1):
        text = "\n\n".join(f"### Solution {i + 1}\n```python\n{program()}\n```" for i in range(blocks))
        if "<CODE>" in asked:
            text = f"<NAME>\nn\n</NAME>\n<DESCRIPTION>\nd\n</DESCRIPTION>\n<CODE>\n```python\n{program()}\n```\n</CODE>"
        choices.append({"index": index, "finish_reason": "stop", "message": {"role": "assistant", "content": text}})
    usage = {"prompt_tokens": len(asked) // 4, "completion_tokens": 40, "total_tokens": len(asked) // 4 + 40}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "instant", "choices": choices, "usage": usage}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), 0)
            data = await reader.readexactly(length)
            if lines[0].startswith("POST") and "chat/completions" in lines[0]:
                body: Any = reply(json.loads(data))
            elif "/models" in lines[0]:
                body = {"object": "list", "data": [{"id": "instant", "object": "model", "created": 0, "owned_by": "x"}]}
            else:
                body = {}
            out = json.dumps(body).encode()
            status = "200 OK" if body else "404 Not Found"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(out)}\r\n\r\n".encode() + out
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
