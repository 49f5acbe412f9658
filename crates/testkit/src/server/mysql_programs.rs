//! The programs of MariaDB and of MySQL, which do the same under other names.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use nix::unistd::{Uid, User};

use super::system;

/// Debian keeps the server out of the path of users.
const MARIADB: &str = "/usr/sbin/mariadbd";

/// Which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brand {
    /// MariaDB: the one of this system, or of another.
    Mariadb,
    /// MySQL, which is of another system always.
    Mysql,
}

impl Brand {
    /// What tests start: that of the system that `LEASEHOLD_TEST_SYSTEM` names, or MariaDB.
    #[must_use]
    pub fn found() -> Self {
        Program::find().brand
    }
}

/// A server program.
pub(super) struct Program {
    brand: Brand,
    pub(super) path: PathBuf,
    /// `usr` of the system that it is part of, if that is not this one: it looks there for its messages and plugins.
    base: Option<PathBuf>,
}

impl Program {
    /// That of the other system, or MariaDB's of this one.
    pub(super) fn find() -> Self {
        let other = |brand, name| Some(Self::of(brand, system::program(name)?.into(), system::file("usr")));
        other(Brand::Mariadb, "mariadbd")
            .or_else(|| other(Brand::Mysql, "mysqld"))
            .unwrap_or_else(|| Self::of(Brand::Mariadb, MARIADB.into(), None))
    }

    const fn of(brand: Brand, path: PathBuf, base: Option<PathBuf>) -> Self {
        Self { brand, path, base }
    }

    /// By which its data is told from that of the other one.
    pub(super) const fn name(&self) -> &'static str {
        match self.brand {
            Brand::Mariadb => "mariadb",
            Brand::Mysql => "mysql",
        }
    }

    /// What it is told before its options, whatever it does.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut all = vec!["--no-defaults".to_owned(), format!("--user={}", user())];
        if let Some(base) = &self.base {
            all.push(format!("--basedir={}", base.display()));
        }
        if self.brand == Brand::Mysql {
            // A second protocol on a port of its own, and a directory that its package makes.
            all.extend(["--mysqlx=OFF", "--secure-file-priv="].map(str::to_owned));
        }
        all
    }

    /// The option by which it does not encrypt.
    pub(super) const fn without_tls(&self) -> &'static str {
        match self.brand {
            Brand::Mariadb => "--skip-ssl",
            Brand::Mysql => "--tls-version=",
        }
    }

    /// Makes the data of a server with one database, whose superuser needs no password.
    ///
    /// # Panics
    /// When it cannot.
    pub(super) fn make(&self, data: &Path, database: &str, options: &[&str]) {
        let directory = format!("--datadir={}", data.display());
        // Its own, for other servers delete what they find where they have their temporary tables.
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
            // Who it is: each server with a copy of the data makes another one of its own.
            fs::remove_file(data.join("auto.cnf")).expect("a server that was set up has an identity");
        }
    }
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}: run setup/debian"))
}

/// As whom it runs: it refuses to be root unless it is told so.
fn user() -> String {
    let user = User::from_uid(Uid::effective()).ok().flatten();
    user.expect("whoever runs tests has a name").name
}
