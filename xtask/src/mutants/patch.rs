//! A mutant: a patch with a header. The header says what the mutant breaks, and which command must fail.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::copy::TreeCopy;

/// The largest number of lines that a mutant may add or remove. A mutant is a single mistake, as a programmer could
/// make it.
const MAX_LINES: usize = 10;

/// One seeded bug.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// A sentence that says what the bug breaks.
    pub(super) breaks: String,
    pub(super) killer: Killer,
    /// The time limit of the killer. Its build does not count.
    pub(super) budget: Duration,
    /// Whether the mutant is also found if the killer has not ended at its time limit.
    pub(super) may_hang: bool,
}

/// The command that must find the bug by failing: `cargo test ...` or `cargo run ...`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Killer(Vec<String>);

impl Mutant {
    /// Parses a patch: a header with lines of `Breaks`, `Killer`, `Budget` and perhaps `Hang`, and then the
    /// differences.
    pub(super) fn read(path: &Path, text: &str) -> Result<Self, String> {
        let header: Vec<&str> = text.lines().take_while(|line| !line.starts_with("--- ")).collect();
        let field = |key: &str| header.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        let needed = |key: &str| field(key).ok_or(format!("its header has no line `{key}: ...`"));
        let count_of =
            |sign: char| text.lines().skip(header.len() + 2).filter(|line| line.starts_with(sign)).count();
        let changed_lines = count_of('+').max(count_of('-'));
        if !(1..=MAX_LINES).contains(&changed_lines) {
            return Err(format!("changes {changed_lines} lines, not 1 to {MAX_LINES}"));
        }
        let budget = needed("Budget")?;
        let seconds = budget.strip_suffix(" s").and_then(|number| number.parse().ok());
        let may_hang = match field("Hang") {
            None => false,
            Some("counts") => true,
            Some(other) => return Err(format!("`Hang: {other}`: only `Hang: counts` is known")),
        };
        Ok(Self {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            path: path.to_owned(),
            breaks: needed("Breaks")?.to_owned(),
            killer: Killer::read(needed("Killer")?)?,
            budget: Duration::from_secs(seconds.ok_or(format!("`Budget: {budget}`: write `Budget: 60 s`"))?),
            may_hang,
        })
    }
}

impl Killer {
    fn read(line: &str) -> Result<Self, String> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["cargo", "test" | "run", ..] => Ok(Self(line.split(' ').skip(1).map(str::to_owned).collect())),
            _ => Err(format!("`Killer: {line}`: only `cargo test ...` and `cargo run ...` are known")),
        }
    }

    /// The command that builds the programs of the killer without running them.
    pub(super) fn build(&self, copy: &TreeCopy) -> Command {
        let (verb, args) = self.0.split_first().expect("it has a verb, as read");
        let (verb, only) = if verb == "test" { ("test", Some("--no-run")) } else { ("build", None) };
        let mut build = copy.cargo(verb);
        build.arg("--locked").args(only).args(args.iter().take_while(|arg| *arg != "--"));
        build
    }

    pub(super) fn run(&self, copy: &TreeCopy) -> Command {
        let (verb, args) = self.0.split_first().expect("it has a verb, as read");
        let mut run = copy.cargo(verb);
        run.arg("--locked").args(args);
        run
    }
}

impl fmt::Display for Killer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cargo {}", self.0.join(" "))
    }
}

/// Runs `git apply` in `root`, which need not be a repository. If it is inside another repository, that one is ignored.
pub(super) fn apply(root: &Path, patch: &Path, options: &[&str]) -> Result<(), String> {
    let mut git = Command::new("git");
    git.arg("apply").args(options).arg(patch).current_dir(root);
    git.env("GIT_CEILING_DIRECTORIES", root.parent().unwrap_or(root)).env_remove("GIT_DIR");
    let output = git.output().map_err(|error| format!("git cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("no longer applies: update it to the current code\n    {}", why.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two\n";

    fn read(header: &str) -> Result<Mutant, String> {
        Mutant::read(Path::new("mutants/01-name.patch"), &format!("{header}\n{DIFF}"))
    }

    #[test]
    fn a_header_is_read() {
        let mutant =
            read("Breaks: it (R1).\nKiller: cargo test -p x y -- --exact\nBudget: 7 s\nHang: counts\n")
                .unwrap();
        assert_eq!((mutant.name.as_str(), mutant.breaks.as_str()), ("01-name", "it (R1)."));
        assert_eq!(mutant.killer.to_string(), "cargo test -p x y -- --exact");
        assert_eq!((mutant.budget, mutant.may_hang), (Duration::from_secs(7), true));
    }

    #[test]
    fn a_missing_header_line_is_reported() {
        for (header, reason) in [
            ("Killer: cargo test\nBudget: 7 s", "no line `Breaks: ...`"),
            ("Breaks: it.\nBudget: 7 s", "no line `Killer: ...`"),
            ("Breaks: it.\nKiller: cargo test", "no line `Budget: ...`"),
            ("Breaks: it.\nKiller: rm -r x\nBudget: 7 s", "only `cargo test"),
            ("Breaks: it.\nKiller: cargo test\nBudget: 7", "write `Budget: 60 s`"),
            ("Breaks: it.\nKiller: cargo test\nBudget: 7 s\nHang: x", "only `Hang: counts`"),
        ] {
            let error = read(header).unwrap_err();
            assert!(error.contains(reason), "{header}: {error}");
        }
        let long = format!("Breaks: it.\n{DIFF}{}", "+more\n".repeat(MAX_LINES));
        assert!(Mutant::read(Path::new("x"), &long).unwrap_err().contains("changes 11 lines"));
    }
}
