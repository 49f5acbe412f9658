//! The URLs of a command: from its options, the environment, or the file for the whole machine.

use std::path::Path;

use crate::{
    engines,
    exit::{Failure, USAGE},
    source::{FILE_VARIABLE, Given, SYSTEM_FILE, Sources, URL_VARIABLE, WITHHELD_VARIABLE},
};

/// The URL for this process: from the option, the environment, or the file for the whole machine.
pub(crate) fn url(flag: Option<String>, required: bool) -> Result<String, Failure> {
    given(flag, required).map(|given| given.url)
}

/// The URLs of a command for several engines, and where each of them came from.
pub(crate) fn urls(flags: Vec<String>, required: bool) -> Result<Vec<Given>, Failure> {
    if flags.is_empty() {
        return Ok(vec![given(None, required)?]);
    }
    flags.into_iter().map(|flag| given(Some(flag), required)).collect()
}

/// The URL of a command for one engine, if it is given as an option.
pub(crate) fn only(mut flags: Vec<String>) -> Result<Option<String>, Failure> {
    if flags.len() > 1 {
        return Err(Failure::new(USAGE, "--url is given more than once: only doctor and serve take several"));
    }
    Ok(flags.pop())
}

/// The URL for this process, and where it came from.
pub(crate) fn given(flag: Option<String>, required: bool) -> Result<Given, Failure> {
    let given = Sources {
        flag,
        variable: std::env::var_os(URL_VARIABLE),
        file: std::env::var_os(FILE_VARIABLE),
        withheld: std::env::var_os(WITHHELD_VARIABLE).is_some(),
        system: Path::new(SYSTEM_FILE),
        required,
    }
    .given()?;
    engines::check_built_in(&given.url)?;
    Ok(given)
}
