//! The program that `cargo xtask torture` runs. It starts itself again for each client process.

use std::process::ExitCode;

use leasehold_e2e::{client, fenced, holder, torture, turns};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args[..] {
        ["client", ref arguments @ ..] => client::main(arguments).map(|()| ExitCode::SUCCESS),
        ["holder", ref arguments @ ..] => holder::main(arguments).map(|()| ExitCode::SUCCESS),
        ["turns", ref arguments @ ..] => turns::main(arguments).map(|()| ExitCode::SUCCESS),
        ["writer", ref arguments @ ..] => fenced::writer(arguments).map(|()| ExitCode::SUCCESS),
        ["torture", ref arguments @ ..] => torture::main(arguments),
        ["fenced", ref arguments @ ..] => fenced::main(arguments),
        _ => Err("expected `torture` or `fenced`".into()),
    };
    ended.unwrap_or_else(|failure| {
        eprintln!("leasehold-e2e: {failure}");
        ExitCode::from(2)
    })
}
