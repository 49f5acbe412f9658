//! A program with redsync for Go. `go` builds it once for each list of versions, below `target/tmp`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use crate::packages::{Neighbour, installed};

/// The modules that it needs.
const MODULES: [&str; 2] =
    ["github.com/go-redsync/redsync/v4@v4.18.1", "github.com/redis/go-redis/v9@v9.23.0"];

/// The path of the program.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("neighbours-go");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/neighbours");
    let source = fs::read_to_string(folder.join("masters.go")).unwrap();
    let (list, wanted) = (dir.join("list"), format!("{MODULES:?}\n{source}"));
    let program = dir.join("masters");
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
    go(&[&["get"], &MODULES[..]].concat());
    go(&["build", "-o", "masters", "."]);
    fs::write(list, wanted).unwrap();
    program
});

/// The command line that starts the program.
pub(crate) fn command_line(arguments: &[&str]) -> Vec<String> {
    [&[PROGRAM.to_str().unwrap()], arguments].concat().into_iter().map(str::to_owned).collect()
}

/// Starts the program: see `masters.go` for its arguments.
pub(crate) fn start(arguments: &[&str]) -> Neighbour {
    let mut command = Command::new(&*PROGRAM);
    command.args(arguments);
    Neighbour::run(command)
}
