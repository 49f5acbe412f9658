//! Programs with modules of Go. `go` builds each of them once for each list of versions, below `target/tmp`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use crate::packages::{Neighbour, installed};

/// The path of the program with redsync.
static MASTERS: LazyLock<PathBuf> = LazyLock::new(|| {
    build("masters", &["github.com/go-redsync/redsync/v4@v4.18.1", "github.com/redis/go-redis/v9@v9.23.0"])
});

/// The path of the program that locks by hand with etcd's client.
static BY_HAND: LazyLock<PathBuf> =
    LazyLock::new(|| build("etcd_by_hand", &["go.etcd.io/etcd/client/v3@v3.6.5"]));

/// Builds a program from the source of this name with these modules, and returns its path.
fn build(name: &str, modules: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("neighbours-go").join(name);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/neighbours");
    let source = fs::read_to_string(folder.join(format!("{name}.go"))).unwrap();
    let (list, wanted) = (dir.join("list"), format!("{modules:?}\n{source}"));
    let program = dir.join(name);
    if fs::read_to_string(&list).is_ok_and(|there| there == wanted) {
        return program;
    }
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("main.go"), source).unwrap();
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

/// The command line that starts the program with redsync.
pub(crate) fn command_line(arguments: &[&str]) -> Vec<String> {
    with_arguments(&MASTERS, arguments)
}

/// The command line that starts the program that locks by hand with etcd's client.
pub(crate) fn command_line_by_hand(arguments: &[&str]) -> Vec<String> {
    with_arguments(&BY_HAND, arguments)
}

fn with_arguments(program: &Path, arguments: &[&str]) -> Vec<String> {
    [&[program.to_str().unwrap()], arguments].concat().into_iter().map(str::to_owned).collect()
}

/// Starts the program with redsync: see `masters.go` for its arguments.
pub(crate) fn start(arguments: &[&str]) -> Neighbour {
    let mut command = Command::new(&*MASTERS);
    command.args(arguments);
    Neighbour::run(command)
}
