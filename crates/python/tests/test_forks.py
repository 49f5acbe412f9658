"""Forks after ``connect``: the child has connections of its own, and no part in the holds of its parent."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import IO

import pytest

from engines import between_processes
from programs import assert_free, is_taken, run, run_file, start

in_processes = between_processes("file", "redis", "postgres")


@in_processes
def test_a_child_connects_anew_and_has_no_guard_of_its_parent(url: str) -> None:
    output = run(
        """
        import gc, os, sys, leasehold
        locks = leasehold.connect(sys.argv[1])
        guard = locks.mutex("a").acquire()
        request = locks.mutex("b")
        child = os.fork()
        if child == 0:
            try:
                assert not guard.check()
                for call in (guard.release, guard.confirm, lambda: guard.extend(5), lambda: guard.remaining,
                             lambda: guard.on_lost(print), lambda: guard.lost):
                    try:
                        call()
                    except leasehold.Forked as error:
                        assert "parent process" in str(error) and error.kind == "forked", error
                    else:
                        raise AssertionError(call)
                # The same objects work, with connections of this process.
                with request as own:
                    assert own.check()
                assert locks.mutex("a").try_acquire() is None
                del guard
                gc.collect()
                print("child done", flush=True)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        # The child has not released it.
        assert guard.check()
        guard.confirm()
        assert leasehold.connect(sys.argv[1]).mutex("a").try_acquire() is None
        guard.release()
        print("parent done")
        """,
        url,
    )
    assert output == "child done\nparent done\n"
    assert_free(url, "a")


@in_processes
def test_a_child_that_ends_as_an_interpreter_does_not_release_the_hold_of_its_parent(url: str) -> None:
    output = run(
        """
        import os, sys, leasehold
        locks = leasehold.connect(sys.argv[1])
        try:
            with locks.mutex("a") as guard:
                child = os.fork()
                if child == 0:
                    sys.exit(5)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
                guard.confirm()
                child = os.fork()
                if child:
                    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
                    guard.confirm()
                    print("held")
        except leasehold.Forked:
            # The second child has left the block, as if it held the name.
            sys.exit(6)
        """,
        url,
    )
    assert output == "held\n"


HOLDER_WITH_A_CHILD = """
import os, sys, threading, leasehold
guard = leasehold.connect(sys.argv[1]).mutex("a").acquire()
child = os.fork()
if child == 0:
    os.close(1)
    os.close(2)
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
threading.Event().wait()
"""


def killed_holder_with_a_child(url: str) -> tuple[IO[str], int]:
    """Kills a holder, as a server that is killed while its workers go on. Returns what ends its child, and the pid of
    the child."""
    holder = start(HOLDER_WITH_A_CHILD, url)
    assert holder.stdin is not None and holder.stdout is not None and holder.stderr is not None
    child = int(holder.stdout.readline())
    assert is_taken(url, "a")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    holder.stderr.close()
    return holder.stdin, child


@pytest.mark.parametrize("engine", ["file"])
def test_a_child_that_lives_on_does_not_keep_the_lock_of_its_parent(url: str) -> None:
    end_of_child, child = killed_holder_with_a_child(url)
    assert_free(url, "a")
    os.kill(child, 0)
    end_of_child.close()


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_child_keeps_the_session_of_its_parent_open(url: str) -> None:
    # Nothing has been granted by this server before: `delay` needs not to pass.
    url += "&hold=session&delay=0s"
    end_of_child, _ = killed_holder_with_a_child(url)
    assert is_taken(url, "a")
    end_of_child.close()
    assert_free(url, "a")


@in_processes
def test_a_fork_while_another_thread_waits(url: str) -> None:
    output = run(
        """
        import os, sys, threading, leasehold
        locks = leasehold.connect(sys.argv[1])
        holder = leasehold.connect(sys.argv[1]).mutex("a").acquire()
        begun = threading.Event()
        granted = []
        def wait():
            begun.set()
            granted.append(locks.mutex("a").acquire(wait=60))
        thread = threading.Thread(target=wait)
        thread.start()
        begun.wait()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                with locks.mutex("b") as guard:
                    is_held = guard.check()
                os._exit(0 if is_held else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        holder.release()
        thread.join()
        assert granted[0].check()
        granted[0].release()
        print("done")
        """,
        url,
    )
    assert output == "done\n"
    assert_free(url, "a")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@between_processes("redis")
def test_workers_of_multiprocessing(url: str, method: str, tmp_path: Path) -> None:
    script = tmp_path / "workers.py"
    script.write_text(
        """
import multiprocessing, os, sys
import leasehold

def work(url, path):
    locks = LOCKS or leasehold.connect(url)
    for _ in range(20):
        with locks.mutex("a") as guard:
            count = int(open(path).read())
            assert guard.check()
            with open(path, "w") as file:
                file.write(str(count + 1))

LOCKS = None
if __name__ == "__main__":
    url, method, path = sys.argv[1:]
    LOCKS = leasehold.connect(url)
    with LOCKS.mutex("b"):
        context = multiprocessing.get_context(method)
        workers = [context.Process(target=work, args=(url, path)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0] * 4
    print(open(path).read())
"""
    )
    count = tmp_path / "count"
    count.write_text("0")
    assert run_file(script, url, method, str(count)) == "80\n"
    assert_free(url, "a")


@in_processes
def test_a_child_in_a_block_of_its_parent_may_ask_for_the_name(url: str) -> None:
    output = run(
        """
        import os, sys, leasehold
        locks = leasehold.connect(sys.argv[1])
        with locks.mutex("a"):
            child = os.fork()
            if child == 0:
                # It waits for its parent, not for itself.
                try:
                    locks.mutex("a").acquire(wait=0.05)
                except (leasehold.Busy, leasehold.Unreachable):
                    # The second on a machine that is busy: it has no connection yet.
                    os._exit(7)
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print("done")
        """,
        url,
    )
    assert output == "done\n"
