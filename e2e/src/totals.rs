//! The file with the figures of all rounds on one engine, one line of JSON for each round.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{Failure, figures::Figures};

/// The rounds of one engine.
pub struct Totals(PathBuf);

impl Totals {
    /// The file of an engine in this directory.
    #[must_use]
    pub fn of(dir: &Path, engine: &str) -> Self {
        Self(dir.join(format!("{engine}.jsonl")))
    }

    /// Adds the figures of a round to the file.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn add(&self, round: &Figures) -> Result<(), Failure> {
        if let Some(dir) = self.0.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        Ok(file.write_all((serde_json::to_string(round)? + "\n").as_bytes())?)
    }

    /// The sum of all rounds.
    ///
    /// # Errors
    /// An error of the operating system; or the file has no rounds, or a line that is not a round.
    pub fn sum(&self) -> Result<Figures, Failure> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(format!("{} has no rounds yet", self.0.display()).into());
            }
            read => read?,
        };
        let mut sum = Figures::default();
        // If the last line is incomplete, the run that wrote it was killed.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            sum.add(&serde_json::from_str(line)?);
        }
        Ok(sum)
    }
}
