//! `leasehold list`: the names that are held or waited for.

use super::{
    connect, print,
    show::{Judged, Seen},
};
use crate::{args, exit::Failure, json, text};

/// Prints the names, one per line.
pub(crate) fn list(args: &args::List, url: &str) -> Result<u8, Failure> {
    let locks = connect(url)?;
    let views = locks.list_blocking(&args.prefix)?;
    if !args.json {
        return print(&text::list(&views));
    }
    let judged = Judged::of(&locks);
    judged.say_why_not();
    let engine = locks.profile().engine;
    let lines = views.iter().map(|view| json::line(&Seen { engine, judged: &judged, view }));
    print(&lines.collect::<String>())
}
