//! Protected resources: text files that holders read, change and write back.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use leasehold::Token;

/// A directory of texts.
#[derive(Clone, Debug)]
pub struct ResultStore(PathBuf);

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The text was written.
    Done,
    /// The fence has seen a larger token, so nothing was written.
    Fenced,
}

impl ResultStore {
    /// The texts in this directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self(dir.to_owned())
    }

    /// Appends an element to a list.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn append(
        &self,
        list: &str,
        element: u64,
        fence: Option<Token>,
        between: impl FnOnce(),
    ) -> io::Result<WriteOutcome> {
        let outcome = self.change(list, fence, between, |text| format!("{text} {element}"))?;
        if outcome == WriteOutcome::Done {
            self.acknowledge(list, element)?;
        }
        Ok(outcome)
    }

    /// Adds one to a counter.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn increment(
        &self,
        counter: &str,
        fence: Option<Token>,
        between: impl FnOnce(),
    ) -> io::Result<WriteOutcome> {
        let outcome = self.change(counter, fence, between, |text| (number(text) + 1).to_string())?;
        if outcome == WriteOutcome::Done {
            self.acknowledge(counter, 1)?;
        }
        Ok(outcome)
    }

    /// Records an acknowledged write, by one append to a second file. Call this after the write itself.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn acknowledge(&self, name: &str, element: u64) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.file(name, "acknowledged"))?;
        file.write_all(format!("{element}\n").as_bytes())
    }

    /// The recorded elements of all acknowledged changes of a resource.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn acknowledged(&self, name: &str) -> io::Result<Vec<u64>> {
        let text = read(&self.file(name, "acknowledged"))?;
        let complete_lines = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(complete_lines.lines().map(number).collect())
    }

    /// How many acknowledged elements are missing from a list.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn lost_elements(&self, list: &str) -> io::Result<u64> {
        let text = read(&self.file(list, "text"))?;
        let present: BTreeSet<u64> = text.split_whitespace().map(number).collect();
        Ok(self.acknowledged(list)?.iter().filter(|element| !present.contains(element)).count() as u64)
    }

    /// By how much a counter is below the number of acknowledged increments.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn lost_increments(&self, counter: &str) -> io::Result<u64> {
        let count = number(&read(&self.file(counter, "text"))?);
        Ok((self.acknowledged(counter)?.len() as u64).saturating_sub(count))
    }

    /// Reads the text, calls `between`, and writes the changed text. With a fence, this function *seals* the resource
    /// before the read (F79): it shows the token to the fence, so that the fence refuses smaller tokens from then on.
    fn change(
        &self,
        name: &str,
        fence: Option<Token>,
        between: impl FnOnce(),
        change: impl FnOnce(&str) -> String,
    ) -> io::Result<WriteOutcome> {
        let text = {
            let _step_lock = self.lock_step(name)?;
            if !self.show(name, fence)? {
                return Ok(WriteOutcome::Fenced);
            }
            read(&self.file(name, "text"))?
        };
        between();
        let _step_lock = self.lock_step(name)?;
        if !self.show(name, fence)? {
            return Ok(WriteOutcome::Fenced);
        }
        self.replace(name, "text", &change(&text))?;
        Ok(WriteOutcome::Done)
    }

    /// Shows a token to the fence. Returns whether the fence accepts the token; returns true if there is no fence. The
    /// tokens of two lineages cannot be compared: the fence refuses every token of a lineage as soon as it has seen a
    /// token of a lineage that is new to it.
    fn show(&self, name: &str, fence: Option<Token>) -> io::Result<bool> {
        let Some(token) = fence else { return Ok(true) };
        let lineage = token.lineage.to_string();
        let text = read(&self.file(name, "fence"))?;
        // Each line has a lineage and its largest token. The last line is the newest lineage.
        let mut lines: Vec<&str> = text.lines().collect();
        let known = lines.iter().position(|line| line.starts_with(&lineage));
        let seen = known.map_or(0, |index| lines[index].rsplit(' ').next().map_or(0, number));
        if known.is_some_and(|index| index + 1 < lines.len()) || token.number < seen {
            return Ok(false);
        }
        let line = format!("{lineage} {token}");
        if known.is_none() || token.number > seen {
            lines.truncate(known.unwrap_or(lines.len()));
            lines.push(&line);
            self.replace(name, "fence", &(lines.join("\n") + "\n"))?;
        }
        Ok(true)
    }

    /// Locks the resource, so that no other process uses it during one step (a read, or a write). The drop of the
    /// returned file unlocks it.
    fn lock_step(&self, name: &str) -> io::Result<File> {
        let path = self.file(name, "step");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.lock()?;
        Ok(file)
    }

    /// Replaces the file in one step. A writer that is killed leaves either the old text or the new text.
    fn replace(&self, name: &str, kind: &str, text: &str) -> io::Result<()> {
        let draft = self.file(name, &format!("{kind}.draft"));
        fs::write(&draft, text)?;
        fs::rename(draft, self.file(name, kind))
    }

    /// The path of a file of a resource.
    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.0.join(format!("{name}.{kind}"))
    }
}

/// The content of a file; empty if there is none.
fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use leasehold::Lineage;

    use super::*;

    #[test]
    fn a_fence_refuses_smaller_tokens_and_earlier_lineages() {
        let dir = tempfile::tempdir().unwrap();
        let store = ResultStore::new(dir.path());
        let shown = |lineage, number| {
            store.show("m0", Some(Token { lineage: Lineage::new(lineage), number })).unwrap()
        };
        assert!(shown(1, 17) && shown(1, 17) && !shown(1, 16));
        assert!(shown(2, 17) && shown(2, 18), "a new lineage");
        assert!(!shown(1, 17) && !shown(1, 99), "an earlier lineage");
        assert!(!shown(2, 17) && shown(2, 18) && shown(2, 19));
    }
}
