//! A private PgBouncer.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::Path,
};

use tempfile::TempDir;

use super::{
    PostgresServer,
    child::{Server, free_port},
    directory::scratch,
    postgres_programs::{as_user_arguments, give_away, psql},
};

/// The program is in a directory that is not in the `PATH` of users.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A PgBouncer with a small pool that by default assigns a server connection to a client for one transaction only. So
/// no session state lasts, and clients receive no notifications through it.
pub struct PgBouncer {
    _process: Server,
    directory: TempDir,
    port: u16,
}

impl PgBouncer {
    /// Starts a PgBouncer in front of the PostgreSQL on port `server`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn start(server: u16) -> Self {
        Self::in_mode(server, "transaction")
    }

    /// Starts a PgBouncer with this pool mode: `session`, `transaction` or `statement`.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn in_mode(server: u16, mode: &str) -> Self {
        Self::on_host("127.0.0.1", server, mode)
    }

    /// Starts a PgBouncer that connects to this PostgreSQL by its unix socket, and gives each client a session.
    ///
    /// # Panics
    /// If the server cannot be started.
    #[must_use]
    pub fn by_socket(server: &PostgresServer) -> Self {
        Self::on_host(&server.socket_directory().display().to_string(), server.port(), "session")
    }

    /// Starts a PgBouncer in front of the PostgreSQL on this host.
    fn on_host(host: &str, server: u16, mode: &str) -> Self {
        let directory = scratch();
        let (port, sockets) = (free_port(), directory.path().display());
        let settings = format!(
            "[databases]\n* = host={host} port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir = {sockets}\nauth_type = trust\nauth_file = users\npool_mode = {mode}\ndefault_pool_size = 3\nmax_client_conn = 1000\n"
        );
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("a private directory takes a file");
        };
        write("pgbouncer.ini", &settings);
        write("users", "\"postgres\" \"\"\n\"leasehold\" \"\"\n");
        give_away(directory.path());
        let (launcher, launcher_arguments) = as_user_arguments(directory.path(), PROGRAM);
        let arguments: Vec<String> =
            launcher_arguments.into_iter().chain(["pgbouncer.ini".to_owned()]).collect();
        let mut process = Server::start(&launcher, directory.path(), &arguments, &[]);
        let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        // Before the PgBouncer listens, a start of the client program would be in vain.
        process.wait_until(|| listens() && psql(port, &["-c", "SELECT 1"]).status.success());
        Self { _process: process, directory, port }
    }

    /// The directory of its unix socket.
    #[must_use]
    pub fn socket_directory(&self) -> &Path {
        self.directory.path()
    }

    /// The port that it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}
