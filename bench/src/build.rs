//! Measures how long a new user waits for the command to build: release builds from scratch, compared with the build of
//! a crate of fixed size (the yardstick).

use std::{fs, path::Path, process::Command, time::Instant};

use crate::{Failure, comparison::Comparison};

/// The size of the yardstick. It is a crate without dependencies, and has so many functions that its build takes some
/// seconds.
const FUNCTIONS: usize = 2_000;
/// The number of builds of each kind. A build of all engines takes minutes.
const ROUNDS: usize = 3;

pub(crate) fn bench() -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace above")?;
    let yardstick = yardstick()?;
    Comparison::new("seconds")
        .rounds(ROUNDS)
        .candidate("the yardstick, a crate of fixed size", || build(yardstick.path(), &[]))
        .candidate("the file engine alone, README's first command", || {
            build(root, &["--locked", "-p", "leasehold-cli", "--no-default-features", "--features", "file"])
        })
        .candidate("all engines", || build(root, &["--locked", "-p", "leasehold-cli"]))
        .run()
}

fn build(dir: &Path, arguments: &[&str]) -> Result<f64, Failure> {
    let target = tempfile::tempdir()?;
    let begin = Instant::now();
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet"]).args(arguments);
    let status = build.env("CARGO_TARGET_DIR", target.path()).current_dir(dir).status()?;
    if !status.success() {
        return Err(format!("the build ended with {status}").into());
    }
    Ok(begin.elapsed().as_secs_f64())
}

fn yardstick() -> Result<tempfile::TempDir, Failure> {
    let dir = tempfile::tempdir()?;
    fs::create_dir(dir.path().join("src"))?;
    fs::write(
        dir.path().join("Cargo.toml"),
        "[package]\nname = \"yardstick\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n",
    )?;
    fs::write(dir.path().join("src/main.rs"), source())?;
    Ok(dir)
}

/// Generates functions that sort, format and look up. Each function uses a type of its own, so that the compiler merges
/// none of them.
fn source() -> String {
    let mut source = String::new();
    for number in 0..FUNCTIONS {
        source += &format!(
            "struct T{number}([u64; {len}]);\n\
             impl T{number} {{\n\
                 fn of(seed: u64) -> String {{\n\
                     let mut it = T{number}([seed; {len}]);\n\
                     it.0.iter_mut().enumerate().for_each(|(at, slot)| *slot = slot.rotate_left(at as u32) ^ {number});\n\
                     format!(\"{{}} {{:?}}\", it.0.iter().sum::<u64>(), it.0.iter().max())\n\
                 }}\n\
             }}\n",
            len = number % 7 + 1,
        );
    }
    source += "fn main() {\n    let seed = std::env::args().count() as u64;\n";
    for number in 0..FUNCTIONS {
        source += &format!("    println!(\"{{}}\", T{number}::of(seed));\n");
    }
    source + "}\n"
}
