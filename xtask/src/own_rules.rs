//! The project's own rules, which no other tool checks. The check of a rule reads texts and returns complaints, one
//! line each.

mod citations;
mod diagnostics;
mod documents;
mod engines;
mod manifests;
mod messages;
mod modes;
mod sources;
mod width;

use std::{fs, io, path::Path, path::PathBuf};

use crate::{mutants, pictures, workspace::Workspace};

/// A file with its content.
pub(crate) struct Text {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Checks every rule. Returns the complaints of all rules together.
pub(crate) fn all(workspace: &Workspace) -> Result<(), String> {
    let complaints = complaints(workspace).map_err(|error| format!("a file cannot be read: {error}"))?;
    verdict(&complaints)
}

/// All complaints as one error.
pub(crate) fn verdict(complaints: &[String]) -> Result<(), String> {
    if complaints.is_empty() {
        return Ok(());
    }
    Err(format!("{} complaints\n  {}", complaints.len(), complaints.join("\n  ")))
}

fn complaints(workspace: &Workspace) -> io::Result<Vec<String>> {
    let rust = texts(workspace, "rs")?;
    let markdown = texts(workspace, "md")?;
    let mut complaints = Vec::new();
    for file in rust.iter().chain(&texts(workspace, "lua")?).chain(&texts(workspace, "sql")?) {
        complaints.extend(width::of_comments(&workspace.shown(&file.path), &file.text));
    }
    for file in &rust {
        complaints.extend(sources::complaints(&workspace.shown(&file.path), &file.text));
    }
    for file in &markdown {
        let shown = workspace.shown(&file.path);
        complaints.extend(documents::commands(&shown, &file.text, workspace));
        complaints.extend(width::of_document(&shown, documents::prose(&file.text)));
        complaints.extend(documents::links(&shown, &file.text, file.path.parent().unwrap_or(Path::new("."))));
    }
    complaints.extend(engines::complaints(workspace, &rust));
    complaints.extend(manifests::complaints(workspace));
    complaints.extend(modes::complaints(workspace, &rust));
    complaints.extend(messages::complaints(&rust, &markdown, |path| workspace.shown(path)));
    complaints.extend(diagnostics::complaints(&rust, &markdown, |path| workspace.shown(path)));
    complaints.extend(pictures::complaints(workspace));
    complaints.extend(mutants::complaints(workspace, &texts(workspace, "patch")?));
    complaints.extend(documents::one_command_for_all(
        &fs::read_to_string(workspace.root.join("README.md"))?,
        &fs::read_to_string(workspace.root.join(".ci/run"))?,
    ));
    complaints.extend(citations(workspace)?);
    Ok(complaints)
}

fn citations(workspace: &Workspace) -> io::Result<Vec<String>> {
    let kinds: Vec<Vec<Text>> =
        citations::KINDS.into_iter().map(|kind| texts(workspace, kind)).collect::<io::Result<_>>()?;
    let all = kinds.iter().flatten().map(|file| (workspace.shown(&file.path), file.text.as_str()));
    Ok(citations::complaints(&all.collect()))
}

fn texts(workspace: &Workspace, extension: &str) -> io::Result<Vec<Text>> {
    let read = |path: PathBuf| Ok(Text { text: fs::read_to_string(&path)?, path });
    workspace.files(extension)?.into_iter().map(read).collect()
}
