//! Builds the documentation as a book, with mdbook, and checks every link in it.
//!
//! The pages link to each other and to source files. They are copied to `target/book`, in the layout of the repository.
//! A link that leads out of the book becomes plain text, because a rendered book has no source files beside it.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
    process::Command,
};

use crate::{
    run::{Failure, Steps},
    setup,
    workspace::Workspace,
};

/// The folder of the pages. `SUMMARY.md` in this folder lists all pages of the book.
const PAGES: &str = "docs";
const SUMMARY: &str = "SUMMARY.md";
/// The pages in the root of the repository.
const ROOT_PAGES: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];

/// Builds the book in `target/book/html`.
pub(crate) fn build(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    setup::for_book(steps, workspace)?;
    let dir = workspace.target.join("book");
    steps.step("copy the pages of the book", || {
        copy_pages(&workspace.root, &dir).map_err(|error| format!("{}: {error}", dir.display()))
    })?;
    steps.command("build the book", Command::new(setup::mdbook(workspace)).arg("build").arg(&dir))?;
    steps.step("links of the book", || {
        let html = dir.join("html");
        let dead = dead_links(&html).map_err(|error| format!("{}: {error}", html.display()))?;
        if dead.is_empty() { Ok(()) } else { Err(dead.join("\n  ")) }
    })
}

/// Copies the pages to the directory of the book.
fn copy_pages(root: &Path, dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let src = dir.join("src");
    fs::create_dir_all(&src)?;
    fs::copy(root.join("book.toml"), dir.join("book.toml"))?;
    for path in files(&root.join(PAGES))?.into_iter().chain(ROOT_PAGES.map(|page| root.join(page))) {
        let relative = path.strip_prefix(root).unwrap_or(&path);
        let is_summary = relative == Path::new(PAGES).join(SUMMARY);
        let to = src.join(if is_summary { Path::new(SUMMARY) } else { relative });
        fs::create_dir_all(to.parent().unwrap_or(&src))?;
        if relative.extension().is_some_and(|extension| extension == "md") {
            fs::write(
                to,
                page_with_links(
                    &fs::read_to_string(&path)?,
                    relative.parent().unwrap_or(Path::new("")),
                    is_summary,
                ),
            )?;
        } else {
            fs::copy(&path, to)?;
        }
    }
    Ok(())
}

/// All files below a directory.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            paths.extend(files(&entry.path())?)
        } else {
            paths.push(entry.path())
        }
    }
    Ok(paths)
}

/// The text of a page in the folder `dir`, for the book. A link to a page of the book stays unchanged; if the page
/// becomes a page of the root, the link is rewritten to start at the root. A link out of the book becomes plain text.
fn page_with_links(text: &str, dir: &Path, becomes_root_page: bool) -> String {
    let mut parts = text.split("](");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, text_after) = part.split_once(')').unwrap_or((part, ""));
        let (path, anchor) =
            target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
        let path_in_repository = resolved(&dir.join(path));
        let link_start = page.rfind('[');
        if path.is_empty() || target.contains("://") || link_start.is_none() {
            page += &format!("]({target})");
        } else if is_in_book(&path_in_repository) {
            // When the page of a folder is rendered, it has another name.
            let path = if becomes_root_page {
                path_in_repository.display().to_string()
            } else {
                path.replace("README.md", "index.md")
            };
            page += &format!("]({path}{})", anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default());
        } else if let Some(link_start) = link_start {
            page.remove(link_start);
        }
        page += text_after;
    }
    page
}

/// Whether the book has a page at this path.
fn is_in_book(path: &Path) -> bool {
    let is_summary = path == Path::new(PAGES).join(SUMMARY);
    ROOT_PAGES.iter().any(|page| path == Path::new(page)) || path.starts_with(PAGES) && !is_summary
}

/// A path with every `..` resolved.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = resolved.pop(),
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved
}

/// The links in rendered pages that lead to a page, or to an anchor of a page, that does not exist.
fn dead_links(html: &Path) -> io::Result<Vec<String>> {
    let mut dead = Vec::new();
    for path in files(html)?.into_iter().filter(|path| is_page(path)) {
        let text = fs::read_to_string(&path)?;
        for part in text.split(" href=\"").skip(1).chain(text.split(" src=\"").skip(1)) {
            let target = part.split('"').next().unwrap_or_default();
            if !target.contains(':') && !is_live_link(&path, target) {
                dead.push(format!("{}: {target}", path.strip_prefix(html).unwrap_or(&path).display()));
            }
        }
    }
    dead.sort();
    dead.dedup();
    Ok(dead)
}

/// Whether a file is a separate page. `print.html` is none: it contains all pages, with their links.
fn is_page(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    path.extension().is_some_and(|extension| extension == "html")
        && !["print.html", "404.html"].iter().any(|other| name == *other)
}

/// Whether a link in a page leads to an existing page and anchor.
fn is_live_link(page: &Path, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { page.to_owned() } else { page.parent().unwrap_or(page).join(path) };
    if anchor.is_empty() || !is_page(&path) {
        return path.exists();
    }
    fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("id=\"{anchor}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_the_book_stay_and_others_become_text() {
        let text = "[a](b.md#c) [code](../crates/x.rs), [r](../README.md) [w](https://x.org/) [h](#here)";
        let inner = "[a](b.md#c) code, [r](../index.md) [w](https://x.org/) [h](#here)";
        assert_eq!(page_with_links(text, Path::new("docs"), false), inner);
        assert_eq!(
            page_with_links("[a](b.md#c) [r](../README.md)", Path::new("docs"), true),
            "[a](docs/b.md#c) [r](README.md)"
        );
    }

    #[test]
    fn a_dead_link_or_anchor_is_found() {
        let dir = std::env::temp_dir().join(format!("xtask-book-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(
            dir.join("a.html"),
            "<h1 id=\"x\"><a href=\"b.html#y\"><a href=\"https://no\"><a href=\"#x\">",
        )
        .unwrap();
        fs::write(dir.join("b.html"), "<img src=\"no.svg\"><a href=\"a.html#x\"><a href=\"a.html#no\">")
            .unwrap();
        let dead = dead_links(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(dead.unwrap(), ["a.html: b.html#y", "b.html: a.html#no", "b.html: no.svg"]);
    }

    /// A page that is not in the list of `SUMMARY.md` would not be in the book.
    #[test]
    fn every_page_is_in_the_summary() {
        let root = crate::workspace::Workspace::find().unwrap().root;
        let summary = fs::read_to_string(root.join(PAGES).join(SUMMARY)).unwrap();
        for path in files(&root.join(PAGES)).unwrap() {
            let shown = path.strip_prefix(root.join(PAGES)).unwrap().display().to_string();
            let is_page = shown.ends_with(".md") && shown != SUMMARY;
            assert!(!is_page || summary.contains(&format!("]({shown})")), "{shown}");
        }
    }
}
