//! `leasehold list`: the names that are held or waited for.

use super::{
    connect, print,
    show::{GuaranteeResult, ShownName},
};
use crate::{args, exit::Failure, json, text};

/// Prints the names, one per line.
pub(crate) fn list(args: &args::List, url: &str) -> Result<u8, Failure> {
    let locks = connect(url)?;
    let views = locks.list_blocking(&args.prefix)?;
    if !args.json {
        return print(&text::list(&views));
    }
    let guarantee = GuaranteeResult::of(&locks);
    guarantee.print_why_unknown();
    let engine = locks.profile().engine;
    let lines = views.iter().map(|view| json::line(&ShownName { engine, guarantee: &guarantee, view }));
    print(&lines.collect::<String>())
}
