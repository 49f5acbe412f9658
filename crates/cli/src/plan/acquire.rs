//! The plan of `leasehold acquire`.

use std::{ffi::OsString, path::PathBuf};

use leasehold::Name;

use super::{Purpose, Run, wanted_mode};
use crate::{args, exit::Failure, source::Given};

/// The plan of `leasehold acquire`.
pub(crate) struct Acquire {
    /// The request, as that of a `run`.
    pub(crate) run: Run,
    /// The process for whose life the hold is renewed. `None`: no process renews the hold.
    pub(crate) while_pid: Option<i32>,
    /// Where the handle goes; `None`: to the standard output.
    pub(crate) handle_file: Option<PathBuf>,
}

impl Acquire {
    /// Resolves the options, as [`Run::new`] does.
    pub(crate) fn new(
        args: args::Acquire,
        given: impl FnOnce() -> Result<Given, Failure>,
    ) -> Result<Self, Failure> {
        let mode = wanted_mode(args.shared, args.permits, args.limit)?;
        // No CMD is run.
        let command = vec![OsString::from("leasehold")];
        let plan =
            Run::with_defaults(Name::new(&args.name)?, Purpose::Acquire, args.hold_options(), command)?;
        let run = Run { mode, ..plan.at(given()?) };
        Ok(Self { run, while_pid: args.while_pid, handle_file: args.handle_file })
    }
}
