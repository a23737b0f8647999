"""A poller reads what is readable, and nothing that was removed meanwhile."""

from __future__ import annotations

import asyncio
import os
import selectors
from functools import partial

import uvloop
from event_loop import settle, until

from proctor_service.sandbox.linux.channel import Poller


async def test_of_two_readable_descriptors_the_one_that_is_removed_first_is_not_read() -> None:
    poller = Poller()
    calls: list[int] = []
    pipes = [os.pipe() for _ in range(2)]

    def read(number: int) -> None:
        calls.append(number)
        for reading, _ in pipes:
            poller.remove(reading)

    poller.open()
    for number, (reading, writing) in enumerate(pipes):
        os.write(writing, b"x")
        poller.add(reading, partial(read, number))
    await until(lambda: bool(calls))
    await settle()
    assert len(calls) == 1
    poller.close()
    poller.close()
    for pipe in pipes:
        poller.remove(pipe[0])
        os.close(pipe[0])
        os.close(pipe[1])


async def test_a_descriptor_is_read_until_it_is_empty() -> None:
    poller = Poller()
    found = bytearray()
    reading, writing = os.pipe()
    poller.open()
    poller.add(reading, lambda: found.extend(os.read(reading, 2)))
    os.write(writing, b"abcdef")
    await until(lambda: len(found) == 6)
    assert found == b"abcdef"
    poller.remove(reading)
    poller.close()
    os.close(reading)
    os.close(writing)


def test_on_a_loop_that_takes_no_kernel_object_it_reads_as_well() -> None:
    async def first_bytes() -> bytes:
        poller, found = Poller(), asyncio.get_running_loop().create_future()
        reading, writing = os.pipe()
        poller.open()
        poller.add(reading, lambda: found.set_result(os.read(reading, 9)))
        os.write(writing, b"abc")
        data: bytes = await found
        poller.remove(reading)
        poller.close()
        os.close(reading)
        os.close(writing)
        return data

    def poll_loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(selectors.PollSelector())

    for factory in (poll_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(first_bytes()) == b"abc"
