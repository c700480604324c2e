"""The first process of a sandbox: it refuses to run anywhere else, then becomes the supervisor beside it."""

from __future__ import annotations

import importlib
import os
import sys

MARKER = "/opt/vector-evolve/sandbox-image"


def main() -> int:
    """Serve the host until it hangs up, as PID 1 of the image that carries the marker file."""
    if os.getpid() != 1 or not os.path.exists(MARKER):
        sys.stderr.write(
            "This is the supervisor of a sandbox image. It runs only as PID 1 of that image and has done nothing.\n"
        )
        return 2
    sys.path.insert(0, os.path.dirname(MARKER))  # `-I` keeps a script's own folder out
    serve = importlib.import_module("guest.supervisor").serve
    del sys.path[0]
    return int(serve(MARKER, reuse="reuse" in sys.argv[1:], network="network" in sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
