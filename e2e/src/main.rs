//! The program behind `cargo xtask torture`. It starts itself again for each client process.

use std::process::ExitCode;

use leasehold_e2e::{client, fenced, holder, torture, turns};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args[..] {
        ["client", ref orders @ ..] => client::main(orders).map(|()| ExitCode::SUCCESS),
        ["holder", ref orders @ ..] => holder::main(orders).map(|()| ExitCode::SUCCESS),
        ["turns", ref orders @ ..] => turns::main(orders).map(|()| ExitCode::SUCCESS),
        ["writer", ref orders @ ..] => fenced::writer(orders).map(|()| ExitCode::SUCCESS),
        ["torture", ref typed @ ..] => torture::main(typed),
        ["fenced", ref typed @ ..] => fenced::main(typed),
        _ => Err("expected `torture` or `fenced`".into()),
    };
    ended.unwrap_or_else(|failure| {
        eprintln!("leasehold-e2e: {failure}");
        ExitCode::from(2)
    })
}
