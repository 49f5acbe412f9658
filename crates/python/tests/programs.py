"""Programs in processes of their own, for tests that end, signal or fork a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import leasehold

#: Longer than a busy machine needs; only a test that fails waits so long.
LIMIT = 60.0


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a Python program. Its arguments are ``sys.argv[1:]``."""
    return _start("-c", textwrap.dedent(code), *arguments)


def run_file(path: Path, *arguments: str) -> str:
    """The output of a program in a file, which must succeed."""
    return _output(_start(str(path), *arguments))


def _start(*arguments: str) -> subprocess.Popen[str]:
    environment = dict(os.environ)
    # The program imports the package that this process uses.
    package = str(Path(leasehold.__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join([package, environment.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The status, the output and the errors of a program that ends by itself."""
    try:
        output, errors = program.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        program.kill()
        output, errors = program.communicate()
        raise AssertionError(f"the program hangs: {output}{errors}") from None
    return program.returncode, output, errors


def run(code: str, *arguments: str) -> str:
    """The output of a program that must succeed."""
    return _output(start(code, *arguments))


def _output(program: subprocess.Popen[str]) -> str:
    status, output, errors = finish(program)
    assert status == 0, errors
    return output


def assert_free(url: str, name: str) -> None:
    """Asserts that nobody holds the name, and that nobody who waits is granted it."""
    locks = leasehold.connect(url)
    for _ in range(2):
        locks.mutex(name).acquire(wait=LIMIT).release()
    locks.close()


def is_taken(url: str, name: str) -> bool:
    """Whether somebody holds the name."""
    locks = leasehold.connect(url)
    guard = locks.mutex(name).try_acquire()
    if guard is not None:
        guard.release()
    locks.close()
    return guard is None
