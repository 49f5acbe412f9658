//! Checks that the commands and files that documents mention exist.

use std::path::Path;

use crate::{CHORES, workspace::Workspace};

/// The command that installs what is needed, checks and tests everything.
const TEST_COMMAND: &str = "./test";

/// Complaints about commands in a document that name a package, program, task or file that does not exist.
pub(super) fn commands(shown: &str, text: &str, workspace: &Workspace) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, command) in lines_of_commands(text).chain(inline_commands(text)) {
        if let Err(reason) = check_command(command, workspace) {
            complaints.push(format!("{shown}:{number}: `{command}`: {reason}"));
        }
    }
    complaints
}

/// Complaints about relative links in a document that lead to files that do not exist.
pub(super) fn links(shown: &str, text: &str, dir: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line, block_language) in lines_with_block_language(text) {
        if block_language.is_some() {
            continue;
        }
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !dir.join(target).exists() {
                complaints.push(format!("{shown}:{number}: a link to `{target}`, which does not exist"));
            }
        }
    }
    complaints
}

/// Checks that the README and the CI use the same command.
pub(super) fn one_command_for_all(readme: &str, ci: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if !lines_of_commands(readme).any(|(_, line)| line == TEST_COMMAND) {
        complaints.push(format!("README.md: the command `{TEST_COMMAND}` is missing"));
    }
    if !ci.lines().any(|line| !line.trim_start().starts_with('#') && line.ends_with(TEST_COMMAND)) {
        complaints.push(format!(".ci/run: does not run `{TEST_COMMAND}`"));
    }
    complaints
}

/// The lines of code blocks that are marked `sh`, with their numbers. The first line of the document has the number 1.
fn lines_of_commands(text: &str) -> impl Iterator<Item = (usize, &str)> {
    lines_with_block_language(text)
        .filter(|(_, _, block_language)| *block_language == Some("sh"))
        .map(|(number, line, _)| (number, line.trim()))
}

/// The commands between backticks in the prose of a document, with their line numbers.
fn inline_commands(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_command = |code: &&str| ["cargo ", "./"].iter().any(|start| code.starts_with(start));
    lines_with_block_language(text).filter(|(_, _, block_language)| block_language.is_none()).flat_map(
        move |(number, line, _)| {
            line.split('`').skip(1).step_by(2).filter(is_command).map(move |code| (number, code))
        },
    )
}

/// The lines outside of fenced blocks, with their numbers. The first line of the document has the number 1.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    lines_with_block_language(text)
        .filter(|(_, _, block_language)| block_language.is_none())
        .map(|(number, line, _)| (number, line))
}

/// Each line with its number and, inside a fenced block, the language of the block.
fn lines_with_block_language(text: &str) -> impl Iterator<Item = (usize, &str, Option<&str>)> {
    let mut block_language = None;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        match (line.trim_start().strip_prefix("```"), block_language) {
            (Some(_), Some(_)) => {
                block_language = None;
                None
            }
            (Some(mark), None) => {
                block_language = Some(mark.trim());
                None
            }
            (None, _) => Some((number, line, block_language)),
        }
    })
}

fn check_command(line: &str, workspace: &Workspace) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != "--" && *word != "#").collect();
    let word_after =
        |flag: &str| words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1)).copied();
    match words[..] {
        ["cargo", "run", ..] => match word_after("--manifest-path") {
            Some(path) if !workspace.root.join(path).exists() => Err(format!("no manifest {path:?}")),
            Some(_) => Ok(()),
            None => check_cargo_run(word_after("-p"), word_after("--bin"), workspace),
        },
        ["cargo", "xtask", chore, ..] if !CHORES.contains(&chore) => Err(format!("no chore {chore:?}")),
        ["cargo", "install", ..] => match word_after("--path") {
            Some(path) if !workspace.root.join(path).join("Cargo.toml").exists() => {
                Err(format!("no package in {path:?}"))
            }
            _ => Ok(()),
        },
        [program, ..] if program.starts_with("./") && !workspace.root.join(program).is_file() => {
            Err("no such file".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_cargo_run(package: Option<&str>, bin: Option<&str>, workspace: &Workspace) -> Result<(), String> {
    let package = package.ok_or("say which package: `-p NAME`")?;
    let known_package = workspace.packages.iter().find(|known| known.name == package);
    let bins = &known_package.ok_or(format!("no package {package:?}"))?.bins;
    match bin {
        Some(bin) if !bins.iter().any(|known| known == bin) => {
            Err(format!("no program {bin:?} in {package}"))
        }
        None if bins.len() != 1 => Err(format!("{package} has {} programs: say which", bins.len())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn workspace() -> Workspace {
        let package = |name: &str, bins: &[&str]| Package {
            name: name.into(),
            dir: format!("/nowhere/{name}").into(),
            features: Vec::new(),
            bins: bins.iter().map(|&bin| bin.into()).collect(),
            manifest: serde_json::Value::Null,
        };
        let packages = vec![package("one", &["leasehold"]), package("two", &["a", "b"]), package("lib", &[])];
        Workspace { root: "/nowhere".into(), target: "/nowhere/target".into(), packages }
    }

    fn complaints(command: &str) -> Vec<String> {
        commands("R.md", &format!("words\n```sh\n{command}\n```\n"), &workspace())
    }

    #[test]
    fn commands_that_exist_pass() {
        for command in [
            "cargo run --release -p one -- run x -- cargo run -p none",
            "cargo run -p two --bin b",
            "cargo xtask test",
            "git clone x",
            "leasehold run x -- true",
            "",
        ] {
            assert_eq!(complaints(command), [""; 0], "{command}");
        }
    }

    #[test]
    fn missing_commands_are_reported_with_line_and_reason() {
        for (command, reason) in [
            ("cargo run --release", "say which package"),
            ("cargo run -p none", "no package \"none\""),
            ("cargo run -p two", "2 programs"),
            ("cargo run -p lib", "0 programs"),
            ("cargo run -p two --bin c", "no program \"c\""),
            ("cargo run --manifest-path x/Cargo.toml", "no manifest \"x/Cargo.toml\""),
            ("cargo xtask dance", "no chore \"dance\""),
            ("cargo install --path x/y", "no package in"),
            ("./no-such-file", "no such file"),
        ] {
            let complaints = complaints(command);
            assert!(
                complaints.len() == 1 && complaints[0].starts_with("R.md:3: "),
                "{command}: {complaints:?}"
            );
            assert!(complaints[0].contains(reason), "{complaints:?}");
        }
    }

    #[test]
    fn commands_in_backticks_are_checked() {
        let complaints = commands("R.md", "| story | `a/b` | `cargo run -p none` |\n", &workspace());
        assert!(complaints.len() == 1 && complaints[0].starts_with("R.md:1: "), "{complaints:?}");
    }

    #[test]
    fn other_text_is_not_checked() {
        let text = "```text\ncargo run -p none\n```\ncargo run -p none\n";
        assert_eq!(commands("R.md", text, &workspace()), [""; 0]);
    }

    #[test]
    fn dead_links_are_found() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let good = "[a](src/main.rs) [b](src/main.rs#x) [c](https://www.rust-lang.org) [d](#here)\n```rust\nx[0](no)\n```\n";
        assert_eq!(links("R.md", good, dir), [""; 0]);
        assert_eq!(links("R.md", "see\n[a](no.md), [b](src/none.rs#x)", dir).len(), 2);
    }

    #[test]
    fn readme_and_ci_run_the_same_command() {
        let readme = "```sh\n./test\n```\n";
        assert_eq!(one_command_for_all(readme, "set -eu\nexec timeout 58m ./test\n"), [""; 0]);
        assert_eq!(one_command_for_all("./test", "# ./test\n").len(), 2);
    }
}
