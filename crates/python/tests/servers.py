"""Private servers for tests: real ones, each with a free port of 127.0.0.1 and a directory of its own.

A server ends with the process that started it, also when that process is killed.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Callable, Optional

# The time limit for a start, on a machine that does much else.
START_LIMIT_S = 120


class Server:
    """A running server. Its subclasses say how it is started and when it serves."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="leasehold-python-", dir=os.environ.get("LEASEHOLD_TEST_DATA")))
        self.port = free_port()
        self.process: Optional[subprocess.Popen[bytes]] = None
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.close()
            raise

    def prepare(self) -> None:
        """Makes what the first start needs."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def serves(self) -> bool:
        raise NotImplementedError

    def url(self, namespace: str) -> str:
        """The URL of locks that no other namespace has."""
        raise NotImplementedError

    def start(self) -> None:
        """Starts the server, also after :meth:`kill`, and waits until it serves."""
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command()],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._serves_or_ended, f"{type(self).__name__} serves")

    def _serves_or_ended(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            log = (self.directory / "log").read_text(errors="replace")
            raise RuntimeError(f"{type(self).__name__} ended with {self.process.returncode}: {log[-2000:]}")
        return self.serves()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kills the server. A killed Redis has lost its data."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """Ends the server and removes its files."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Redis(Server):
    """A Redis without persistence."""

    def prepare(self) -> None:
        # Debian's package of tools has the program of the server under another name.
        program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
        if program is None:
            raise RuntimeError("redis-server is missing: run setup/debian")
        os.symlink(program, self.directory / "redis-server")

    def command(self) -> list[str]:
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        return [str(self.directory / "redis-server"), "--port", str(self.port), *options]

    def serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
        except OSError:
            return False

    def url(self, namespace: str) -> str:
        return f"redis://127.0.0.1:{self.port}?prefix={namespace}:"

    @property
    def address(self) -> str:
        """The URL without a prefix."""
        return f"redis://127.0.0.1:{self.port}"


class Etcd(Server):
    """An etcd of one node, whose shortest lease is 2 s."""

    def prepare(self) -> None:
        self.peer_port = free_port()

    def command(self) -> list[str]:
        url, peers = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        return [
            need("etcd"),
            *("--data-dir", "data", "--logger=zap", "--log-level=error", "--unsafe-no-fsync"),
            *("--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers),
            *("--heartbeat-interval=150", "--election-timeout=750"),
        ]

    def serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
                return b'"health":"true"' in answer.read()
        except OSError:
            return False

    def url(self, namespace: str) -> str:
        return f"etcd://127.0.0.1:{self.port}?prefix=/{namespace}"


class Postgres(Server):
    """A PostgreSQL whose superuser ``postgres`` needs no password."""

    def prepare(self) -> None:
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not programs:
            raise RuntimeError("postgres is missing: run setup/debian")
        self.programs = Path(programs[-1])
        if os.geteuid() == 0:
            # The server refuses to run as root.
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        initdb = [str(self.programs / "initdb"), "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync"]
        made = subprocess.run([*self.as_user(), *initdb], cwd=self.directory, capture_output=True)
        if made.returncode != 0:
            raise RuntimeError(f"initdb: {made.stderr.decode(errors='replace')}")

    def as_user(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        user = pwd.getpwnam("postgres")
        ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
        return ["setpriv", *ids, "--clear-groups", "--pdeathsig", "KILL", "--"]

    def command(self) -> list[str]:
        settings = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=.",
            "max_connections=200",
            "fsync=off",
            # A killed server leaves nothing outside of its directory.
            "dynamic_shared_memory_type=mmap",
        ]
        options = [word for setting in settings for word in ("-c", setting)]
        return [*self.as_user(), str(self.programs / "postgres"), "-D", "data", *options]

    def serves(self) -> bool:
        try:
            lines = (self.directory / "data/postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    def kill(self, how: signal.Signals = signal.SIGQUIT) -> None:
        # SIGQUIT ends all sessions at once and removes the shared memory, which SIGKILL would leave.
        super().kill(how)

    def url(self, namespace: str) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres?prefix={namespace}:"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise RuntimeError(f"{program} is missing: run setup/debian")
    return path


def wait_until(condition: Callable[[], bool], what: str, limit: float = START_LIMIT_S) -> None:
    """Waits for an event that comes soon or never."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"not within {limit} s: {what}"
        time.sleep(0.01)
