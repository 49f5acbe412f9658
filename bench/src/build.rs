//! How long a newcomer waits for the command: a release build from nothing.

use std::{path::Path, process::Command, time::Instant};

use crate::{Failure, contest::Contest};

pub(crate) fn bench() -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace above")?;
    Contest::new("seconds")
        .rounds(3)
        .way("cargo build --release -p leasehold-cli", || {
            let target = tempfile::tempdir()?;
            let begin = Instant::now();
            let mut build = Command::new("cargo");
            build.args(["build", "--release", "--locked", "--quiet", "-p", "leasehold-cli"]);
            let status = build.env("CARGO_TARGET_DIR", target.path()).current_dir(root).status()?;
            if !status.success() {
                return Err(format!("the build ended with {status}").into());
            }
            Ok(begin.elapsed().as_secs_f64())
        })
        .run()
}
