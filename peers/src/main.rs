//! Compares other lock crates with leasehold, under the same faults, the same checker and the same plain workload:
//! mutexes only, waits with a limit, sections shorter than a lease.
//!
//! Without the name of a peer the program runs the comparison; it starts itself with the name of a peer as one of the
//! clients of a round.

mod peer;
mod table;
mod unreported;
mod work;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args[..] {
        [role, ref orders @ ..] if peer::NAMES.contains(&role) => work::client(role, orders),
        ref typed => table::main(typed),
    };
    ended.map_or_else(
        |failure| {
            eprintln!("leasehold-peers: {failure}");
            ExitCode::from(2)
        },
        |()| ExitCode::SUCCESS,
    )
}
