//! Programs in Go. `go` builds each once for each list of versions, below `target/tmp`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use crate::packages::{Neighbour, installed};

/// A program with redsync.
pub(crate) static MASTERS: GoProgram = GoProgram(LazyLock::new(|| {
    build("masters", &["github.com/go-redsync/redsync/v4@v4.18.1", "github.com/redis/go-redis/v9@v9.23.0"])
}));

/// A program with a lock on etcd that is written by hand with etcd's client.
pub(crate) static ETCD_BY_HAND: GoProgram =
    GoProgram(LazyLock::new(|| build("etcd_by_hand", &["go.etcd.io/etcd/client/v3@v3.6.5"])));

/// A program with a lock on ZooKeeper that is written by hand.
pub(crate) static ZOOKEEPER_BY_HAND: GoProgram = GoProgram(LazyLock::new(|| {
    build("zookeeper_by_hand", &["github.com/samuel/go-zookeeper@v0.0.0-20190923202752-2cc03de413da"])
}));

/// A program with a lock on Redis that is written by hand.
pub(crate) static REDIS_BY_HAND: GoProgram =
    GoProgram(LazyLock::new(|| build("redis_by_hand", &["github.com/redis/go-redis/v9@v9.23.0"])));

/// The path of a program, which is built at its first use.
pub(crate) struct GoProgram(LazyLock<PathBuf>);

impl GoProgram {
    /// The command line that starts the program.
    pub(crate) fn command_line(&self, arguments: &[&str]) -> Vec<String> {
        [&[self.0.to_str().unwrap()], arguments].concat().into_iter().map(str::to_owned).collect()
    }

    /// Starts the program: see its source for its arguments.
    pub(crate) fn start(&self, arguments: &[&str]) -> Neighbour {
        let mut command = Command::new(&*self.0);
        command.args(arguments);
        Neighbour::run(command)
    }
}

/// Builds the program from `NAME.go` and `journal.go` beside this file, with these modules.
fn build(name: &str, modules: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("neighbours-go").join(name);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/neighbours");
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let (source, journal) = (read(&format!("{name}.go")), read("journal.go"));
    let (list, wanted) = (dir.join("list"), format!("{modules:?}\n{source}\n{journal}"));
    let program = dir.join(name);
    if fs::read_to_string(&list).is_ok_and(|there| there == wanted) {
        return program;
    }
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("main.go"), source).unwrap();
    fs::write(dir.join("journal.go"), journal).unwrap();
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        installed(go.args(arguments).current_dir(&dir));
    };
    go(&["mod", "init", "neighbours"]);
    go(&[&["get"], modules].concat());
    go(&["build", "-o", name, "."]);
    fs::write(list, wanted).unwrap();
    program
}
