//! Feeds parsers of foreign bytes with random input. It runs the same tests as `./test`, but for longer, and with
//! another seed each day.

use std::time::Duration;

use super::night::Night;

/// The packages with such tests, and the number of tests in each.
const PACKAGES: [(&str, u32); 7] = [
    ("leasehold-core", 2),
    ("leasehold-redis", 3),
    ("leasehold-etcd", 2),
    ("leasehold-zookeeper", 2),
    ("leasehold-sql", 3),
    ("leasehold", 2),
    ("leasehold-cli", 1),
];
/// The part that the names of these tests have in common.
const TESTS: &str = "read_from_random_bytes";

/// Runs all these tests, for `time` in total. They are built without optimisation, so that an overflow panics.
pub(super) fn run(night: &Night<'_>, time: Duration) -> Result<(), String> {
    let all: u32 = PACKAGES.iter().map(|(_, count)| count).sum();
    let seconds = (time / all).as_secs().max(1).to_string();
    let mut failed = Vec::new();
    for (package, _) in PACKAGES {
        let mut tests = night.workspace.cargo("test");
        let target = if package == "leasehold-cli" { "--bins" } else { "--lib" };
        tests.args(["--quiet", "--locked", "--all-features", "-p", package, target]);
        tests.args(["--", TESTS, "--test-threads=1"]);
        tests.env("LEASEHOLD_FUZZ_SECONDS", &seconds).env("LEASEHOLD_SEED", night.day().to_string());
        if let Err(reason) = night.run_logged("fuzz", &mut tests) {
            failed.push(format!("{package}: {reason}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn every_fuzz_test_is_run_in_its_package() {
        let Ok(workspace) = Workspace::find() else { panic!("cargo knows the workspace") };
        for (package, count) in PACKAGES {
            let known = workspace.packages.iter().find(|known| known.name == package).expect(package);
            let sources = workspace.files("rs").expect("the sources can be listed");
            let texts = sources.iter().filter(|path| path.starts_with(known.dir.join("src")));
            let texts = texts.map(|path| std::fs::read_to_string(path).expect("a source can be read"));
            let found: usize = texts.map(|text| text.matches(&format!("{TESTS}() {{")).count()).sum();
            assert_eq!(found, count as usize, "{package}");
        }
    }
}
