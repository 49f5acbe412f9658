"""A private MariaDB and a private ZooKeeper for tests, as those of ``servers``."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess

from servers import Server, need

#: Debian installs the server in a directory that is not in the ``PATH`` of users.
MARIADB = "/usr/sbin/mariadbd"
DATABASE = "locks"
LIBRARIES = "/usr/share/java"


class Mariadb(Server):
    """A MariaDB with one database, whose superuser ``root`` needs no password."""

    def prepare(self) -> None:
        if not os.path.exists(MARIADB):
            raise RuntimeError("mariadbd is missing: run setup/debian")
        make = [
            need("mariadb-install-db"),
            *self.options(),
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        made = subprocess.run(make, cwd=self.directory, capture_output=True)
        if made.returncode != 0:
            raise RuntimeError(f"mariadb-install-db: {made.stderr.decode(errors='replace')}")
        # A database is a directory.
        (self.directory / "data" / DATABASE).mkdir()

    def options(self) -> list[str]:
        return [
            # A server that root starts refuses to run without a user.
            *("--no-defaults", f"--user={pwd.getpwuid(os.geteuid()).pw_name}"),
            # A server deletes all temporary tables in its temporary directory when it starts.
            *(f"--datadir={self.directory / 'data'}", f"--tmpdir={self.directory}"),
            "--loose-innodb-log-file-size=4M",
        ]

    def command(self) -> list[str]:
        return [
            *(MARIADB, *self.options(), f"--port={self.port}", "--bind-address=127.0.0.1"),
            *(f"--socket={self.directory / 'socket'}", f"--pid-file={self.directory / 'pid'}"),
            *("--max-connections=300", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=2"),
        ]

    def serves(self) -> bool:
        query = ["--no-defaults", "--user=root", f"--socket={self.directory / 'socket'}", DATABASE, "-e", "SELECT 1"]
        log = (self.directory / "log").read_text(errors="replace")
        return (
            "ready for connections" in log
            and subprocess.run([need("mariadb"), *query], capture_output=True).returncode == 0
        )

    def url(self, namespace: str) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{DATABASE}?prefix={namespace}:"


class Zookeeper(Server):
    """A ZooKeeper of one node, whose shortest session is 1 s."""

    def prepare(self) -> None:
        settings = [
            *(f"clientPort={self.port}", "clientPortAddress=127.0.0.1", "dataDir=./data", "forceSync=no"),
            *("tickTime=500", "minSessionTimeout=1000", "maxSessionTimeout=60000", "maxClientCnxns=0"),
            *("admin.enableServer=false", "4lw.commands.whitelist=*"),
        ]
        (self.directory / "zoo.cfg").write_text("\n".join(settings))

    def command(self) -> list[str]:
        names = ("zookeeper", "netty-codec", "netty-resolver", "slf4j-simple")
        return [
            *(need("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            *(f"-Djava.io.tmpdir={self.directory}", "-Djava.net.preferIPv4Stack=true"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "--class-path"),
            ":".join(f"{LIBRARIES}/{name}.jar" for name in names),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"),
        ]

    def serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"srvr")
                return b"Mode: " in connection.makefile("rb").read()
        except OSError:
            return False

    def url(self, namespace: str) -> str:
        return f"zookeeper://127.0.0.1:{self.port}?prefix=/{namespace}"
