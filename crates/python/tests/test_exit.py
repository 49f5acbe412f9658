"""The end of the interpreter: holds are released, and it never hangs."""

from __future__ import annotations

from engines import between_processes
from programs import assert_free, finish, is_taken, start

in_processes = between_processes("file", "redis", "postgres")


def ends(code: str, url: str, status: int = 0) -> str:
    """Runs a program to its end, after which it holds nothing."""
    ended, output, errors = finish(start(code, url))
    assert ended == status, errors
    assert "Fatal" not in errors and "panicked" not in errors, errors
    return output


@in_processes
def test_holds_of_an_interpreter_that_ends_are_released(url: str) -> None:
    ends(
        """
        import sys, leasehold
        locks = leasehold.connect(sys.argv[1])
        guard = locks.mutex("a").acquire()
        # In a cycle that nobody collects, and where the interpreter does not look.
        other = locks.mutex("b").acquire()
        cycle = [other]
        cycle.append(cycle)
        import gc
        gc.disable()
        sys.modules["kept"] = cycle
        """,
        url,
    )
    assert not is_taken(url, "a") and not is_taken(url, "b")


@in_processes
def test_an_exit_in_a_block_releases(url: str) -> None:
    ends(
        """
        import sys, leasehold
        with leasehold.connect(sys.argv[1]).mutex("a"):
            sys.exit(3)
        """,
        url,
        status=3,
    )
    assert not is_taken(url, "a")


@in_processes
def test_daemon_threads_in_blocks_and_waits_do_not_hang_the_exit(url: str) -> None:
    ends(
        """
        import sys, threading, leasehold
        locks = leasehold.connect(sys.argv[1])
        inside = threading.Event()
        def hold():
            with locks.mutex("a"):
                inside.set()
                threading.Event().wait()
        def wait():
            with locks.mutex("a"):
                pass
        threading.Thread(target=hold, daemon=True).start()
        inside.wait()
        for _ in range(20):
            threading.Thread(target=wait, daemon=True).start()
        """,
        url,
    )
    assert not is_taken(url, "a")
    assert_free(url, "a")


@in_processes
def test_tasks_in_waits_do_not_hang_the_exit(url: str) -> None:
    ends(
        """
        import asyncio, sys, leasehold
        locks = leasehold.connect(sys.argv[1])
        async def main():
            guard = await locks.mutex("a").acquire_async()
            waits = [asyncio.ensure_future(locks.mutex("a").acquire_async()) for _ in range(20)]
            await asyncio.sleep(0.01)
            return guard, waits
        kept = asyncio.new_event_loop().run_until_complete(main())
        """,
        url,
    )
    assert_free(url, "a")


def test_callbacks_of_losses_do_not_hang_the_exit() -> None:
    url = "memory:"
    for _ in range(3):
        ends(
            """
            import sys, threading, time, leasehold
            locks = leasehold.connect(sys.argv[1])
            begun = threading.Event()
            def told(reason):
                begun.set()
                while True:
                    time.sleep(0.001)
            guards = [locks.mutex(str(n), max_hold=0.01).acquire() for n in range(10)]
            for guard in guards:
                guard.on_lost(told)
            begun.wait()
            """,
            url,
        )


@between_processes("file", "redis")
def test_a_process_that_ends_without_its_interpreter(url: str) -> None:
    ends(
        """
        import os, sys, leasehold
        guard = leasehold.connect(sys.argv[1]).mutex("a", ttl=2).acquire()
        os._exit(4)
        """,
        url,
        status=4,
    )
    # Nothing was sent: the kernel, or the end of the lease, frees the name.
    assert_free(url, "a")


def test_an_exit_with_an_unreachable_server_does_not_hang() -> None:
    ends(
        """
        import sys, threading, leasehold
        locks = leasehold.connect("redis://127.0.0.1:1")
        def wait():
            try:
                locks.mutex("a").acquire()
            except leasehold.LockError:
                pass
        threading.Thread(target=wait, daemon=True).start()
        """,
        "",
    )
