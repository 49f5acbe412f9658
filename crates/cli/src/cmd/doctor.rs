//! `leasehold doctor`: what an engine can promise, what its servers and its user lack, and what to do.

use leasehold::{Connect, Error, ErrorKind, Locks, Name};

use super::print;
use crate::{
    args,
    doctor::{Options, Waits, examine, lines, unopened},
    exit::Failure,
    json,
    source::Given,
};

/// How the test lock is shown to others.
const OWNER: &str = "leasehold doctor";

/// Examines the engine of each URL, and prints what was found.
pub(crate) fn doctor(args: &args::Doctor, urls: &[Given]) -> Result<u8, Failure> {
    if let Some(name) = &args.scratch {
        Name::new(name)?;
    }
    let options = Options { ttl: args.ttl, scratch_name: args.scratch.clone() };
    crate::log::start(0);
    // A wrong URL is reported before anything is looked at.
    let engines = urls.iter().map(|given| open(&given.url)).collect::<Result<Vec<_>, Failure>>()?;
    let (mut code, mut waits) = (crate::exit::DONE, Waits::new());
    for (index, (opened, given)) in engines.iter().zip(urls).enumerate() {
        let examination = match opened {
            Ok(locks) => {
                let mut examination = examine(locks, &given.origin, &options);
                if examination.is_reached {
                    examination.findings.extend(waits.of_next_engine(locks, given));
                }
                examination
            }
            Err(error) => unopened(&given.url, &given.origin, error),
        };
        // The answer about one engine does not wait for the next one.
        let text = match args.json {
            true => json::examination(&examination),
            false if urls.len() > 1 => {
                let gap = if index > 0 { "\n" } else { "" };
                let place = given.place(examination.engine);
                format!("{gap}{place} (URL {} of {})\n{}", index + 1, urls.len(), lines(&examination))
            }
            false => lines(&examination),
        };
        print(&text)?;
        code = code.max(examination.exit_code());
    }
    Ok(code)
}

/// Opens the engine of a URL, as its users do. A wrong URL is a failure; another reason for which the engine refuses is
/// something to tell.
fn open(url: &str) -> Result<Result<Locks, Error>, Failure> {
    match Connect::default().owner(OWNER).connect(url) {
        Err(error) if matches!(error.kind(), ErrorKind::Misconfigured | ErrorKind::Invalid) => {
            Err(error.into())
        }
        opened => Ok(opened),
    }
}
