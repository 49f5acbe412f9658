//! `leasehold list`: the names that are held or waited for.

use super::{
    connect, print,
    show::{GuaranteeResult, ShownName},
    tell_default,
};
use crate::{args, exit::Failure, json, source::Given, text};

/// Prints the names, one per line.
pub(crate) fn list(args: &args::List, given: &Given) -> Result<u8, Failure> {
    let locks = connect(&given.url)?;
    tell_default(given, &locks);
    let views = locks.list_blocking(&args.prefix)?;
    if !args.json {
        if views.is_empty() {
            text::print_message(&nothing(locks.profile().engine, &args.prefix));
        }
        return print(&text::list(&views));
    }
    let guarantee = GuaranteeResult::of(&locks);
    guarantee.print_why_unknown();
    let engine = locks.profile().engine;
    let lines = views.iter().map(|view| json::line(&ShownName { engine, guarantee: &guarantee, view }));
    print(&lines.collect::<String>())
}

/// The message for an empty list. Without it, no output could also mean a mistyped prefix or another engine.
fn nothing(engine: &str, prefix: &str) -> String {
    match prefix {
        "" => format!("{engine}: no name is held or waited for"),
        _ => format!("{engine}: no name that begins with {prefix:?} is held or waited for"),
    }
}
