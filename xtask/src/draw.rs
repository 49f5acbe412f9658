//! Draws random lines of code, for a test of names: a reader who knows only ARCHITECTURE.md should recognise the crate
//! and the purpose of each line. The paths of the lines are printed at the end.

use std::{fs, path::Path};

use crate::workspace::Workspace;

/// The number of lines in one draw.
const LINES: usize = 12;
/// The length of the shortest line that is drawn. Shorter lines (`}` or `)?;`) contain no names.
const MIN_LENGTH: usize = 24;

/// The number of lines that are printed before a drawn line, and after it.
const CONTEXT: usize = 10;

/// How the header of an item begins.
const ITEM_STARTS: [&str; 9] =
    ["pub", "fn ", "async fn ", "const fn ", "impl", "trait ", "struct ", "enum ", "macro_rules!"];

/// Draws lines from the sources of the product in `folder`. Prints each line with the lines around it, and at the end
/// all paths.
pub(crate) fn print(workspace: &Workspace, seed: u64, folder: &str) -> Result<(), String> {
    let sources = workspace.files("rs").map_err(|error| format!("a file cannot be read: {error}"))?;
    let mut files = Vec::new();
    for path in &sources {
        let shown = workspace.shown(path);
        if is_source(&shown) && shown.starts_with(folder) && !is_test_module(path) {
            let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            files.push((shown, text));
        }
    }
    let lines: Vec<(&str, &str, usize)> = files
        .iter()
        .flat_map(|(path, text)| code(text).map(move |(number, _)| (path.as_str(), text.as_str(), number)))
        .collect();
    let drawn = draw(&lines, seed);
    println!("seed {seed}, {} of {} lines", drawn.len(), lines.len());
    for (nth, (_, text, number)) in drawn.iter().enumerate() {
        println!("\n-- {}\n{}", nth + 1, in_context(text, *number));
    }
    println!("\nlocations");
    for (nth, (path, _, number)) in drawn.iter().enumerate() {
        println!("{:3}  {path}:{number}", nth + 1);
    }
    Ok(())
}

/// The line with this number, marked, and the lines around it. The headers of the function, the `impl` and so on that
/// contain the line come first, as an editor shows them.
fn in_context(text: &str, number: usize) -> String {
    let first = number.saturating_sub(CONTEXT + 1);
    let mut shown: Vec<String> = headers(text, number)
        .into_iter()
        .filter(|&(index, _)| index < first)
        .map(|(_, header)| format!("  {header}\n  ..."))
        .collect();
    shown.extend(text.lines().enumerate().skip(first).map_while(|(index, line)| {
        let mark = if index + 1 == number { '>' } else { ' ' };
        (index < number + CONTEXT).then(|| format!("{mark} {line}"))
    }));
    shown.join("\n")
}

/// The headers of the items that contain the line with this number, the outermost first, each with its index.
fn headers(text: &str, number: usize) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut inner = lines.get(number - 1).map_or(0, |line| indent(line));
    let mut headers = Vec::new();
    for (index, line) in lines.iter().enumerate().take(number - 1).rev() {
        let begins_item = ITEM_STARTS.iter().any(|start| line.trim_start().starts_with(start));
        if indent(line) < inner && begins_item {
            inner = indent(line);
            headers.insert(0, (index, *line));
        }
    }
    headers
}

/// Whether a file belongs to the product: it is neither a test nor part of the tools.
fn is_source(path: &str) -> bool {
    let path = Path::new(path);
    path.starts_with("crates")
        && !path.starts_with("crates/testkit")
        && !path.components().any(|part| part.as_os_str() == "tests")
        && path.components().any(|part| part.as_os_str() == "src")
}

/// Whether the file is a module that its parent declares for tests only.
fn is_test_module(path: &Path) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_stem().and_then(|name| name.to_str())) else {
        return false;
    };
    let parents = [folder.with_extension("rs"), folder.join("mod.rs"), folder.join("lib.rs")];
    parents.iter().filter_map(|parent| fs::read_to_string(parent).ok()).any(|text| declares_test(&text, name))
}

/// Whether this text declares the module `name` below an attribute `cfg` with `test`.
fn declares_test(text: &str, name: &str) -> bool {
    let (lines, declaration) = (text.lines().map(str::trim).collect::<Vec<_>>(), format!("mod {name};"));
    lines.windows(2).any(|pair| {
        pair[1].ends_with(&declaration) && pair[0].starts_with("#[cfg(") && pair[0].contains("test")
    })
}

/// The lines of code of a file up to its tests, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).enumerate();
    lines.map(|(index, line)| (index + 1, line.trim())).filter(|(_, line)| {
        line.len() >= MIN_LENGTH && !["//", "#", "use ", "mod "].iter().any(|start| line.starts_with(start))
    })
}

/// Draws some of the lines, each of them at most once. The result is the same for the same seed and the same sources.
fn draw<T>(lines: &[T], seed: u64) -> Vec<&T> {
    let mut state = seed;
    let mut left: Vec<&T> = lines.iter().collect();
    let mut drawn = Vec::new();
    while drawn.len() < LINES && !left.is_empty() {
        let index = next_random(&mut state) % left.len() as u64;
        drawn.push(left.swap_remove(index as usize));
    }
    drawn
}

/// The next random number: SplitMix64 (<https://prng.di.unimi.it/splitmix64.c>).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_lines_again_and_another_seed_others() {
        let lines: Vec<u32> = (0..1000).collect();
        let first = draw(&lines, 1);
        assert_eq!(first.len(), LINES);
        assert_eq!(first, draw(&lines, 1));
        assert_ne!(first, draw(&lines, 2));
        let mut distinct = first.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), LINES);
        assert_eq!(draw(&lines[..3], 1).len(), 3);
    }

    #[test]
    fn a_drawn_line_is_shown_with_the_items_that_contain_it() {
        let body = "        one();\n".repeat(30);
        let text = format!(
            "fn other() {{\n}}\n\nimpl Client {{\n    fn send(&self) {{\n{body}        two();\n    }}\n}}\n"
        );
        let shown = in_context(&text, 36);
        assert!(
            shown.starts_with("  impl Client {\n  ...\n      fn send(&self) {\n  ...\n          one();\n"),
            "{shown}"
        );
        assert!(shown.contains("\n>         two();\n"));
    }

    #[test]
    fn a_drawn_line_is_marked_among_the_lines_around_it() {
        let text = (1..=40).map(|number| format!("line {number}\n")).collect::<String>();
        let shown = in_context(&text, 15);
        assert_eq!(shown.lines().count(), 2 * CONTEXT + 1);
        assert!(
            shown.starts_with("  line 5\n")
                && shown.ends_with("  line 25")
                && shown.contains("\n> line 15\n")
        );
        assert!(
            in_context(&text, 1).starts_with("> line 1\n") && in_context(&text, 40).ends_with("> line 40")
        );
    }

    #[test]
    fn modules_for_tests_are_recognised() {
        let text = "mod claim;\n#[cfg(test)]\nmod judge;\n#[cfg(all(test, unix))]\npub(crate) mod rig;\n";
        assert_eq!(
            ["claim", "judge", "rig", "dge"].map(|name| declares_test(text, name)),
            [false, true, true, false]
        );
    }

    #[test]
    fn comments_imports_short_lines_and_tests_are_not_drawn() {
        let text = "use std::{fs, path::Path, process::Command};\n// a comment of more than some letters\n}\n    let \
                    answer = ask_the_server(request);\n#[cfg(test)]\nmod tests { fn a_test_of_many_letters() {} }\n";
        assert_eq!(code(text).collect::<Vec<_>>(), [(4, "let answer = ask_the_server(request);")]);
        assert!(is_source("crates/core/src/guard.rs") && !is_source("crates/core/tests/locks/main.rs"));
        assert!(!is_source("crates/testkit/src/lib.rs") && !is_source("xtask/src/main.rs"));
    }
}
