//! The record of `leasehold break`: two lines in an audit file, as those of the page for operators.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use leasehold::{Actor, Locks, Name, Owner};
use leasehold_ops::audit::{Audit, BreakRecord, Journal};

use crate::{
    args,
    exit::{self, Failure},
};

/// The variable with the path of the audit file.
const AUDIT_VARIABLE: &str = "LEASEHOLD_AUDIT_FILE";

/// Records one break.
pub(crate) struct Recorder {
    audit: Audit,
    path: PathBuf,
    reason: String,
}

impl Recorder {
    /// The recorder, if a break is to be recorded.
    ///
    /// # Errors
    /// If the file cannot be used, or there is a file and no reason, or a reason and no file.
    pub(crate) fn new(args: &args::Break) -> Result<Option<Self>, Failure> {
        let usage = |message: &str| Err(Failure::new(exit::USAGE, message));
        let Some(path) = audit_file(args)? else {
            return match args.reason {
                None => Ok(None),
                Some(_) => {
                    usage("--reason is recorded in an audit file: give --audit-file or LEASEHOLD_AUDIT_FILE")
                }
            };
        };
        let Some(text) = &args.reason else {
            return usage("breaks are recorded (--audit-file or LEASEHOLD_AUDIT_FILE): say why by --reason");
        };
        let Some(reason) = BreakRecord::reason(text) else {
            return usage("--reason needs a text of at most 500 characters");
        };
        let audit = Audit::open(&path, Journal::of_system());
        let audit = audit.map_err(|error| unusable(exit::CONFIG, &path, &error, "nothing was broken"))?;
        Ok(Some(Self { audit, path, reason: reason.to_owned() }))
    }

    /// Breaks by `end`, with a line before and one after.
    ///
    /// # Errors
    /// The failure of the break. If the first line cannot be written, nothing is broken.
    pub(crate) fn recorded(
        &self,
        args: &args::Break,
        name: &Name,
        locks: &Locks,
        end: impl FnOnce() -> Result<u8, Failure>,
    ) -> Result<u8, Failure> {
        let before = locks.show_blocking(name.as_str())?;
        let record = BreakRecord {
            id: format!("{:016x}", Actor::random().id()),
            who: Owner::of_process(std::process::id()).label().to_owned(),
            known_by: "system",
            address: None,
            engine: locks.profile().engine.to_owned(),
            name: name.as_str().to_owned(),
            token: args.token,
            force: args.force,
            reason: self.reason.clone(),
        };
        self.write(record.intent(SystemTime::now(), &before), "nothing was broken")?;
        let result = end();
        let outcome = match &result {
            Ok(_) => ("broken", None),
            Err(failure) if failure.code == exit::NOT_HELD => ("not held", None),
            Err(failure) => ("failed", failure.message.as_deref()),
        };
        let after = locks.show_blocking(name.as_str()).map_err(|error| error.to_string());
        let line = record.outcome(SystemTime::now(), outcome, after.as_ref().map_err(String::as_str));
        let done = format!("the file lacks the outcome, which is: {}", outcome.0);
        match self.write(line, &done) {
            Ok(()) => result,
            // The failure of the break is more important.
            Err(unwritten) => result.and(Err(unwritten)),
        }
    }

    fn write(&self, line: leasehold_ops::audit::Fields, consequence: &str) -> Result<(), Failure> {
        let unwritable = |error| unusable(exit::UNAVAILABLE, &self.path, &error, consequence);
        self.audit.write(line).map_err(unwritable)
    }
}

/// The file in which breaks are recorded, by the option or the variable.
fn audit_file(args: &args::Break) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = &args.audit_file {
        return Ok(Some(path.clone()));
    }
    let Some(path) = std::env::var_os(AUDIT_VARIABLE) else { return Ok(None) };
    if path.is_empty() {
        let message = "LEASEHOLD_AUDIT_FILE is empty: write the path of a file into it, or remove it";
        return Err(Failure::new(exit::CONFIG, message));
    }
    Ok(Some(path.into()))
}

/// Whether the variable asks for a record of each break.
#[cfg(feature = "top")]
pub(crate) fn is_wanted_by_environment() -> bool {
    std::env::var_os(AUDIT_VARIABLE).is_some()
}

fn unusable(code: u8, path: &Path, error: &io::Error, consequence: &str) -> Failure {
    Failure::new(code, format!("the audit file {}: {error}: {consequence}", path.display()))
}
