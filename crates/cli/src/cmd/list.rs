//! `leasehold list`: the names that are held or waited for.

use super::{connect, print, show::Seen};
use crate::{args, exit::Failure, json, text};

/// Prints them, one a line.
pub(crate) fn list(args: &args::List, url: &str) -> Result<u8, Failure> {
    let locks = connect(url)?;
    let views = pollster::block_on(locks.list(&args.prefix))?;
    if !args.json {
        return print(&text::list(&views));
    }
    let guarantee = pollster::block_on(locks.guarantee())?.level.to_string();
    let engine = locks.profile().engine;
    let lines = views.iter().map(|view| json::line(&Seen { engine, guarantee: guarantee.clone(), view }));
    print(&lines.collect::<String>())
}
