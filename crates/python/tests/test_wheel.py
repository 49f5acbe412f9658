"""The wheel: what it has, that it works in an environment that has nothing else, and how long its import takes."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import leasehold

WHEEL = bool(os.environ.get("LEASEHOLD_TEST_WHEEL"))
LARGEST_IMPORTS = ("asyncio", "inspect", "typing_extensions", "prometheus_client", "redis")


def files() -> list[str]:
    if not WHEEL:
        pytest.fail("run `cargo xtask python`: the module is not installed from its wheel")
    return [str(file) for file in importlib.metadata.files("leasehold") or []]


def test_the_wheel_is_for_every_cpython_of_the_stable_abi() -> None:
    metadata = importlib.metadata.distribution("leasehold").read_text("WHEEL") or ""
    tags = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Tag: ")]
    assert tags and all(tag.startswith("cp39-abi3-") for tag in tags), metadata
    natives = [file for file in files() if file.endswith(".so")]
    assert natives == ["leasehold/_leasehold.abi3.so"]


def test_the_wheel_has_its_types_and_licences() -> None:
    assert "leasehold/py.typed" in files()
    texts = [file for file in files() if "licenses/" in file]
    assert sorted(Path(file).name for file in texts) == ["LICENSE-APACHE", "LICENSE-MIT"]
    metadata = importlib.metadata.metadata("leasehold")
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.9"
    assert metadata["Requires-Dist"] is None, "the module needs no other package"
    assert (metadata["Description"] or metadata.get_payload()).strip(), "the page of the package has a text"


def test_the_wheel_has_no_tests_and_no_sources_of_rust() -> None:
    for file in files():
        assert not file.endswith((".rs", ".toml")), file
        assert not Path(file).name.startswith(("test_", "conftest")), file


def test_the_native_part_needs_no_library_of_python() -> None:
    native = Path(leasehold.__file__).with_name("_leasehold.abi3.so")
    assert native.exists()
    # An extension that is linked with libpython works with no other Python than that one.
    assert b"libpython3" not in native.read_bytes()


def test_the_module_works_in_an_empty_environment(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    os.symlink(Path(leasehold.__file__).parent, packages / "leasehold")
    code = (
        "import leasehold, sys\n"
        f"with leasehold.connect('file://{tmp_path}/locks').mutex('x') as guard: print(guard.token)\n"
    )
    python = str(environment / "bin/python")
    ran = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 0


def test_the_import_loads_no_large_module() -> None:
    # Counts say the same on a busy machine; `cargo run -p leasehold-bench -- python` measures the time.
    code = "import sys; before = set(sys.modules); import leasehold; print(*sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert "leasehold" in loaded
    assert not set(loaded) & set(LARGEST_IMPORTS), loaded
