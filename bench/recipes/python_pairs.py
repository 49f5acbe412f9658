"""Measures how often the Python module leasehold, or redis-py's Lock, acquires and releases.

It is started as `python_pairs.py leasehold|redis|floor PORT` and reads lines; it answers each line with pairs per
second. `floor` locks nothing: what two waits cost asyncio itself, which a lock of asyncio tasks cannot undercut.

    threads N MILLIS      each thread has its own name
    tasks N MILLIS        each asyncio task has its own name
    contended N MILLIS    all threads use one name

The line `import` is answered with the milliseconds that the import of the library takes in a new interpreter, without
the start of that interpreter. The program ends at the end of its input.
"""

import asyncio
import subprocess
import sys
import threading
import time

LEASE_S = 30
# A new interpreter has no module of the library, nor any that the library imports.
IMPORT = "import time; begin = time.perf_counter(); import {}; print((time.perf_counter() - begin) * 1000)"


class Leasehold:
    name = "leasehold"

    def __init__(self, port):
        import leasehold

        self.locks = leasehold.connect(f"redis://127.0.0.1:{port}")

    def lock(self, name):
        return self.locks.mutex(name, ttl=LEASE_S)

    async_lock = lock


class RedisPy:
    name = "redis"

    def __init__(self, port):
        import redis
        import redis.asyncio

        self.client = redis.Redis(port=port)
        # Its default, 100, is an error for more tasks than that.
        self.async_client = redis.asyncio.Redis(port=port, max_connections=1024)

    def lock(self, name):
        return self.client.lock("redis-py:" + name, timeout=LEASE_S)

    def async_lock(self, name):
        return self.async_client.lock("redis-py:" + name, timeout=LEASE_S)


class Floor:
    """`async with` blocks that wait for a future of asyncio at each end. One callback completes all futures of a turn
    of the loop."""

    name = "asyncio"

    def __init__(self, _port):
        self.waiting = []

    def async_lock(self, _name):
        return self

    async def __aenter__(self):
        await self.wait()

    async def __aexit__(self, *_exception):
        await self.wait()

    def wait(self):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.waiting.append(future)
        if len(self.waiting) == 1:
            loop.call_soon(self.complete)
        return future

    def complete(self):
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.set_result(None)


def in_threads(library, names, millis):
    done = []

    def pairs(name, end):
        lock = library.lock(name)
        count = 0
        while time.monotonic() < end:
            with lock:
                count += 1
        done.append(count)

    begin = time.monotonic()
    threads = [threading.Thread(target=pairs, args=(name, begin + millis / 1000)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.monotonic() - begin)


async def in_tasks(library, names, millis):
    async def pairs(name, end):
        lock = library.async_lock(name)
        count = 0
        while time.monotonic() < end:
            async with lock:
                count += 1
        return count

    begin = time.monotonic()
    done = await asyncio.gather(*(pairs(name, begin + millis / 1000) for name in names))
    return sum(done) / (time.monotonic() - begin)


def main():
    library = {"leasehold": Leasehold, "redis": RedisPy, "floor": Floor}[sys.argv[1]](int(sys.argv[2]))
    # One loop for all measurements, because connections belong to a loop.
    loop = asyncio.new_event_loop()
    for line in sys.stdin:
        what, *numbers = line.split()
        if what == "import":
            code = IMPORT.format(library.name)
            figure = float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        else:
            count, millis = map(int, numbers)
            names = ["contended" if what == "contended" else f"bench-{number}" for number in range(count)]
            if what == "tasks":
                figure = loop.run_until_complete(in_tasks(library, names, millis))
            else:
                figure = in_threads(library, names, millis)
        print(f"{figure:.2f}", flush=True)


main()
