"""Time in which this process stood still is nobody else's fault."""

import asyncio
import time

import pytest

from sandbox.waking import waking_timeout


async def test_a_limit_holds():
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        async with waking_timeout(0.3):
            await asyncio.sleep(30)
    assert time.monotonic() - started < 5


async def test_a_loop_that_stood_still_takes_no_time():
    """With asyncio's own limit the same wait is over."""

    async def held_up(limit):
        async with limit:
            ready = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.2, ready.set_result, "here")
            await asyncio.sleep(0)
            time.sleep(1.5)  # noqa: ASYNC251  (somebody blocks the loop)
            await asyncio.sleep(0.1)
            return await ready

    assert await held_up(waking_timeout(1.0)) == "here"
    with pytest.raises(TimeoutError):
        await held_up(asyncio.timeout(1.0))


async def test_nothing_is_left_behind():
    async with waking_timeout(0.2):
        pass
    await asyncio.sleep(0.4)
