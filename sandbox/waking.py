"""Time limits that count only the time in which this process could have noticed: its own delay is nobody else's fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

STEP_SECONDS = 0.5


@asynccontextmanager
async def waking_timeout(seconds: float) -> AsyncIterator[None]:
    """Like `asyncio.timeout`, but time in which the event loop stood still, or the process was stopped, counts as one step.

    Raises:
        TimeoutError: the time is over.
    """
    loop = asyncio.get_running_loop()
    left = seconds
    waiting: list[asyncio.TimerHandle] = []

    def wait() -> None:
        waiting[:] = [loop.call_later(min(STEP_SECONDS, left), step)]

    def step() -> None:
        nonlocal left
        left -= STEP_SECONDS
        if left <= 0:
            limit.reschedule(loop.time())
        else:
            wait()

    wait()
    try:
        async with asyncio.timeout(None) as limit:
            yield
    finally:
        waiting[0].cancel()
