//! The programs of MariaDB and MySQL, which have different names for the same tasks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use nix::unistd::{Uid, User};

use super::system;

/// Debian installs the server in a directory that is not in the `PATH` of users.
const MARIADB: &str = "/usr/sbin/mariadbd";

/// MariaDB or MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brand {
    /// MariaDB, of this system or of another one.
    Mariadb,
    /// MySQL, always of another system.
    Mysql,
}

impl Brand {
    /// The brand that tests start: the one in the system that `LEASEHOLD_TEST_SYSTEM` names, otherwise MariaDB of this
    /// system.
    #[must_use]
    pub fn found() -> Self {
        Program::find().brand
    }
}

/// A server program.
pub(super) struct Program {
    brand: Brand,
    pub(super) path: PathBuf,
    /// The directory `usr` of the other system that the program belongs to, if any. The program finds its messages and
    /// plugins below this directory.
    base: Option<PathBuf>,
}

impl Program {
    /// The server of the other system. If there is no other system, or it has no such server: MariaDB of this system.
    pub(super) fn find() -> Self {
        let other = |brand, name| Some(Self::of(brand, system::program(name)?.into(), system::file("usr")));
        other(Brand::Mariadb, "mariadbd")
            .or_else(|| other(Brand::Mysql, "mysqld"))
            .unwrap_or_else(|| Self::of(Brand::Mariadb, MARIADB.into(), None))
    }

    const fn of(brand: Brand, path: PathBuf, base: Option<PathBuf>) -> Self {
        Self { brand, path, base }
    }

    /// The name by which the stored data of the two brands is told apart.
    pub(super) const fn name(&self) -> &'static str {
        match self.brand {
            Brand::Mariadb => "mariadb",
            Brand::Mysql => "mysql",
        }
    }

    /// The arguments that come before all others.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut all = vec!["--no-defaults".to_owned(), format!("--user={}", user())];
        if let Some(base) = &self.base {
            all.push(format!("--basedir={}", base.display()));
        }
        if self.brand == Brand::Mysql {
            // The first option turns off a second protocol, which has its own port. The second option makes the server
            // use no directory that only an installation of the package creates.
            all.extend(["--mysqlx=OFF", "--secure-file-priv="].map(str::to_owned));
        }
        all
    }

    /// The option that turns encryption off.
    pub(super) const fn without_tls(&self) -> &'static str {
        match self.brand {
            Brand::Mariadb => "--skip-ssl",
            Brand::Mysql => "--tls-version=",
        }
    }

    /// Creates the data of a server with one database, whose superuser needs no password.
    ///
    /// # Panics
    /// If the data cannot be created.
    pub(super) fn make(&self, data: &Path, database: &str, options: &[&str]) {
        let directory = format!("--datadir={}", data.display());
        // A private temporary directory, because other servers delete temporary tables in theirs.
        let temporary = format!("--tmpdir={}", data.parent().unwrap_or(data).display());
        let output = match self.brand {
            Brand::Mariadb => {
                let maker = system::program("mariadb-install-db");
                let mut command = Command::new(maker.as_deref().unwrap_or("mariadb-install-db"));
                command.args(self.arguments());
                command.args([
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                    &directory,
                    &temporary,
                ]);
                run(command.args(options))
            }
            Brand::Mysql => {
                let (mut command, script) = (Command::new(&self.path), data.with_extension("sql"));
                fs::write(&script, format!("CREATE DATABASE {database};\n"))
                    .expect("a private directory takes a file");
                command
                    .args(self.arguments())
                    .args(["--initialize-insecure", &directory, &temporary])
                    .args(options);
                run(command.arg(format!("--init-file={}", script.display())))
            }
        };
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "no data for {}: {}", self.name(), String::from_utf8_lossy(&text));
        if self.brand == Brand::Mariadb {
            // A database is a directory.
            fs::create_dir(data.join(database)).expect("what was made can be added to");
        } else {
            // The file with the server's identity. Without it, each server with a copy of the data generates a new
            // identity.
            fs::remove_file(data.join("auto.cnf")).expect("a server that was set up has an identity");
        }
    }
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}: run setup/debian"))
}

/// The user that the server runs as, for its option `--user`. A server started by root refuses to run without this
/// option.
fn user() -> String {
    let user = User::from_uid(Uid::effective()).ok().flatten();
    user.expect("the user that runs the tests has a name").name
}
