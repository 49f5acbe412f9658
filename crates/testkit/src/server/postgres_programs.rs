//! The programs of PostgreSQL and the user that they run as.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    process::{Command, Output},
};

use nix::unistd::{Uid, User};

/// The user that Debian's package creates for the server. The server refuses to run as root.
pub(super) const USER: &str = "postgres";

/// Runs `psql` against a port of this machine, as its superuser.
///
/// # Panics
/// If the program is missing.
#[must_use]
pub fn psql(port: u16, arguments: &[&str]) -> Output {
    let mut command = Command::new("psql");
    command.args([
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-h",
        "127.0.0.1",
        "-U",
        USER,
        "-d",
        "postgres",
    ]);
    command.args(["-p", &port.to_string()]).args(arguments);
    command.output().unwrap_or_else(|error| panic!("cannot start psql: {error}: run setup/debian"))
}

/// Gives a directory and its files to the server's user, if this process is root.
pub(super) fn give_away(directory: &Path) {
    if !Uid::effective().is_root() {
        return;
    }
    let user = User::from_name(USER).ok().flatten().expect("postgres is missing: run setup/debian");
    let ours = fs::read_dir(directory).into_iter().flatten().flatten().map(|file| file.path());
    for path in ours.chain([directory.to_owned()]) {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("root gives away what it owns");
    }
}

/// The program and the leading arguments of a command that runs `program` as the owner of a directory.
pub(super) fn as_user_arguments(directory: &Path, program: &str) -> (String, Vec<String>) {
    let owner = fs::metadata(directory).expect("the directory is there");
    if owner.uid() == Uid::effective().as_raw() {
        return (program.to_owned(), Vec::new());
    }
    let ids = [format!("--reuid={}", owner.uid()), format!("--regid={}", owner.gid())];
    let rest = ["--clear-groups", "--pdeathsig", "KILL", "--", program].map(str::to_owned);
    ("setpriv".to_owned(), ids.into_iter().chain(rest).collect())
}

/// A command that runs `program` as the owner of a directory. The caller adds arguments.
pub(super) fn as_user(directory: &Path, program: &str) -> Command {
    let (first, rest) = as_user_arguments(directory, program);
    let mut command = Command::new(first);
    command.args(rest).current_dir(directory);
    command
}
