//! The URLs of a command: from its options, the environment, or the file for the whole machine.

use std::path::Path;

use crate::{
    engines,
    exit::{Failure, USAGE},
    source::{FILE_VARIABLE, Origin, SYSTEM_FILE, Sources, URL_VARIABLE, WITHHELD_VARIABLE},
};

/// The URL for this process: from the option, the environment, or the file for the whole machine.
pub(crate) fn url(flag: Option<String>, required: bool) -> Result<String, Failure> {
    url_and_origin(flag, required).map(|(url, _)| url)
}

/// The URLs of a command for several engines, and where each of them came from.
pub(crate) fn urls(flags: Vec<String>, required: bool) -> Result<Vec<(String, Origin)>, Failure> {
    if flags.is_empty() {
        return Ok(vec![url_and_origin(None, required)?]);
    }
    flags.into_iter().map(|flag| url_and_origin(Some(flag), required)).collect()
}

/// The URL of a command for one engine, if it is given as an option.
pub(crate) fn only(mut flags: Vec<String>) -> Result<Option<String>, Failure> {
    if flags.len() > 1 {
        return Err(Failure::new(USAGE, "--url is given more than once: only doctor and serve take several"));
    }
    Ok(flags.pop())
}

fn url_and_origin(flag: Option<String>, required: bool) -> Result<(String, Origin), Failure> {
    let (url, origin) = Sources {
        flag,
        variable: std::env::var_os(URL_VARIABLE),
        file: std::env::var_os(FILE_VARIABLE),
        withheld: std::env::var_os(WITHHELD_VARIABLE).is_some(),
        system: Path::new(SYSTEM_FILE),
        required,
    }
    .url_and_origin()?;
    engines::check_built_in(&url)?;
    Ok((url, origin))
}
