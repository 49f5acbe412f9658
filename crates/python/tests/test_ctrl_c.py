"""Ctrl-C in a program of asyncio, at each step of a block: nothing is left.

``asyncio.run`` of Python 3.11 and later cancels the main task at the first Ctrl-C, and raises ``KeyboardInterrupt`` at
the next one, wherever the program is. Before, the first one raises it. The program below gets its signals from a trace
function, after one call of the module or of the section after the other: there is no time in this test. The interpreter
looks for signals after calls.
"""

from __future__ import annotations

import sys

import pytest

from programs import assert_free, run

SWEEP = """
import asyncio, dis, functools, gc, os, signal, sys
import leasehold

url, signals, is_taken = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "taken"
locks, others = leasehold.connect(url), leasehold.connect(url)
request = locks.mutex("a", ttl=60)
package = os.path.dirname(leasehold.__file__)
steps = counted = sent = bodies = 0


async def section():
    global bodies
    holder = await others.mutex("a").acquire_async(wait=60) if is_taken else None
    if holder is not None:
        # After the request has begun to wait.
        asyncio.get_running_loop().call_soon(lambda: holder.release_async().start(lambda _: None))
    async with request as guard:
        assert guard.check()
        bodies += 1
        await asyncio.sleep(0)


def is_traced(code):
    # Without the destructors: an exception that is raised in one is printed, and goes no further.
    return code is section.__code__ or (code.co_filename.startswith(package) and code.co_name != "__del__")


@functools.lru_cache(None)
def offsets_after_calls(code):
    instructions = list(dis.get_instructions(code))
    pairs = zip(instructions, instructions[1:])
    return {after.offset for call, after in pairs if call.opname.startswith("CALL")}


def trace(frame, event, argument):
    global counted, sent
    if not is_traced(frame.f_code):
        return None
    frame.f_trace_opcodes = True
    if event == "opcode" and frame.f_lasti in offsets_after_calls(frame.f_code):
        counted += 1
        # The second one comes a few steps after the first.
        if sent < signals and counted == (steps, steps + 1 + steps % 7)[sent]:
            sent += 1
            signal.raise_signal(signal.SIGINT)
    return trace


interrupts = 0
while True:
    counted = sent = 0
    steps += 1
    sys.settrace(trace)
    try:
        asyncio.run(section())
    except (KeyboardInterrupt, asyncio.CancelledError):
        interrupts += 1
    finally:
        sys.settrace(None)
    # What an exception refers to is gone with it.
    gc.collect()
    for _ in range(2):
        others.mutex("a").acquire(wait=60).release()
    assert not others.show("a").waiters and not others.show("a").holders
    if sent == 0:
        break
print(interrupts, bodies)
"""


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("is_taken", ["free", "taken"])
@pytest.mark.parametrize("engine", ["memory", "redis"])
def test_an_interrupt_at_each_step_of_a_block_of_a_task_leaves_nothing(url: str, signals: int, is_taken: str) -> None:
    interrupts, bodies = map(int, run(SWEEP, url, str(signals), is_taken).split())
    # A block is entered and left in Rust: most of the steps are those of the section itself.
    assert interrupts >= 3, "several steps were interrupted"
    assert bodies > 0
    if not url.startswith("memory"):
        assert_free(url, "a")


def test_the_first_interrupt_of_a_program_of_asyncio_cancels_its_main_task() -> None:
    program = """
    import asyncio, signal, sys, leasehold
    locks = leasehold.connect("memory:ctrl-c")

    async def section():
        try:
            async with locks.mutex("a"):
                signal.raise_signal(signal.SIGINT)
                await asyncio.get_running_loop().create_future()
        except BaseException as error:
            print(type(error).__name__)
            raise

    try:
        asyncio.run(section())
    except KeyboardInterrupt:
        print("ended")
    assert locks.mutex("a").try_acquire() is not None
    """
    first = "CancelledError" if sys.version_info >= (3, 11) else "KeyboardInterrupt"
    assert run(program) == f"{first}\nended\n"
