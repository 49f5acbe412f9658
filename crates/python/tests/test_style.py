"""The sources of the module: their types and their style."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def run(*command: str) -> None:
    ran = subprocess.run([sys.executable, "-m", *command], cwd=PACKAGE, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_types_of_the_module_are_right() -> None:
    run("mypy", "--strict", "--cache-dir=/dev/null", "-p", "leasehold")


def test_the_types_of_the_examples_are_right() -> None:
    examples = [str(file) for file in sorted(PACKAGE.glob("examples/*.py"))]
    # The examples see the module as its users do: by its stubs.
    if examples:
        run("mypy", "--strict", "--cache-dir=/dev/null", *examples)


def test_the_sources_are_formatted() -> None:
    run("ruff", "format", "--no-cache", "--check", ".")


def test_the_sources_have_no_lint() -> None:
    run("ruff", "check", "--no-cache", ".")
