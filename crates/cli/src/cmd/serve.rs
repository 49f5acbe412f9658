//! `leasehold serve`: the page for operators.

use std::{path::Path, time::Duration};

use leasehold::Locks;
use leasehold_ops::Reached;
use leasehold_serve::{EngineSource, ProxySettings, Server, Settings, StartError, TlsFiles};

use super::{connect, print, run::wait_failure};
use crate::{
    args, engines,
    event_loop::EventLoop,
    exit::{self, Failure},
    plan,
    signals::{Signals, interrupts_wait},
    source::{self, Given, Origin},
};

/// How long the command waits at its end for breaks that have begun: as long as a holder may take to stop, and some
/// time for the record.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Serves the page until a signal comes.
pub(crate) fn serve(args: args::Serve, urls: Vec<String>, require_url: bool) -> Result<u8, Failure> {
    // Signals are blocked before the engines start their threads, because threads inherit the mask.
    let signals = Signals::take().map_err(|error| Failure::system("cannot read signals", error))?;
    let engines = engines(&args, urls, require_url)?;
    let server = Server::start(settings(args, engines)).map_err(start_failure)?;
    let event_loop = EventLoop::new(signals, None).map_err(wait_failure)?;
    print(&format!("http{}://{}/\n", if server.is_encrypted() { "s" } else { "" }, server.address()))?;
    loop {
        let signal = event_loop.wait(None).map_err(wait_failure)?;
        if signal.is_some_and(interrupts_wait) {
            server.stop(STOP_LIMIT);
            return Ok(exit::DONE);
        }
    }
}

/// The engines of `--url`, then those of `--engine`. Without both, the engine that the environment gives.
fn engines(args: &args::Serve, flags: Vec<String>, require_url: bool) -> Result<Vec<EngineSource>, Failure> {
    let mut sources: Vec<EngineSource> = Vec::new();
    if args.engine.is_empty() || !flags.is_empty() {
        for given in plan::urls(flags, require_url)? {
            let name = engines::name_of(&given.url);
            let same = sources.iter().filter(|source| source.locks.profile().engine == name).count();
            let label = if same == 0 { name.to_owned() } else { format!("{name}-{}", same + 1) };
            let reached = reached(&given, &label);
            sources.push(EngineSource { label, locks: connect(&given.url)?, breaker: None, reached });
        }
    }
    for text in &args.engine {
        let (label, url) = labelled(text)?;
        let (url, label) = (resolved(url)?, label.to_owned());
        let reached = Reached::of_url(&url, &label);
        sources.push(EngineSource { label, locks: locks(&url)?, breaker: None, reached });
    }
    for text in &args.break_engine {
        let (label, url) = labelled(text)?;
        let Some(source) = sources.iter_mut().find(|source| source.label == label) else {
            let message = format!("--break-engine: no engine has the label {label:?}");
            return Err(Failure::new(exit::USAGE, message));
        };
        let url = resolved(url)?;
        source.reached = Reached::of_url(&url, label);
        source.breaker = Some(locks(&url)?);
    }
    Ok(sources)
}

/// The label of an engine, and its URL or `@` and the path of a file with it. It is parsed here and not by clap, whose
/// message would show the whole text, which may contain a password.
fn labelled(text: &str) -> Result<(&str, &str), Failure> {
    let parts = text.split_once('=');
    let is_valid = |(label, url): &(&str, &str)| {
        !label.is_empty() && !label.contains([':', '/', '@']) && !url.is_empty()
    };
    let message = "--engine and --break-engine take LABEL=URL or LABEL=@FILE";
    parts.filter(is_valid).ok_or_else(|| Failure::new(exit::USAGE, message))
}

/// How a reader of the page reaches the engine of this URL. The reader has another environment than this process.
fn reached(given: &Given, label: &str) -> Reached {
    match given.origin {
        Origin::Default => Reached::AsHere,
        _ => Reached::of_url(&given.url, label),
    }
}

/// A URL, which may be in a file.
fn resolved(url: &str) -> Result<String, Failure> {
    match url.strip_prefix('@') {
        Some(path) => source::url_of_file(Path::new(path)),
        None => Ok(url.to_owned()),
    }
}

fn locks(url: &str) -> Result<Locks, Failure> {
    engines::check_built_in(url)?;
    connect(url)
}

fn settings(args: args::Serve, engines: Vec<EngineSource>) -> Settings {
    let mut settings = Settings::new(args.listen, engines);
    settings.hosts = args.host;
    settings.tls = args.tls_cert.zip(args.tls_key).map(|(certificate, key)| TlsFiles { certificate, key });
    settings.view_tokens = args.view_tokens;
    settings.break_tokens = args.break_tokens;
    let (peers, breakers) = (args.proxy_peer, args.proxy_breaker);
    let proxy = args.proxy_user_header.zip(args.proxy_secret);
    settings.proxy =
        proxy.map(|(user_header, secret)| ProxySettings { user_header, peers, secret, breakers });
    settings.allow_break = args.allow_break;
    settings.audit = args.audit;
    settings.metrics_names = args.metrics_names;
    settings
}

fn start_failure(error: StartError) -> Failure {
    let code = match &error {
        StartError::Settings(_) => exit::USAGE,
        StartError::File(_) => exit::CONFIG,
        _ => exit::UNAVAILABLE,
    };
    Failure::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// A reader of the page has another environment than this process.
    #[test]
    fn a_page_tells_the_url_of_each_engine_without_its_password() {
        let options = ["--engine", "a=redis://:canary@h", "--engine", "b=redis://h", "--allow-break"];
        let breaker = ["--audit", "/a", "--break-engine", "b=redis://root:canary@h"];
        let all = ["leasehold", "serve"].into_iter().chain(options).chain(breaker);
        let args::Command::Serve(args) = args::Args::try_parse_from(all).unwrap().command else { panic!() };
        let flags = vec!["etcd://h".to_owned(), "etcd://i".to_owned()];
        let sources = engines(&args, flags, true).unwrap();
        let lines: Vec<_> = sources.iter().map(|source| source.reached.command("list")).collect();
        assert_eq!(
            lines,
            [
                "leasehold --url etcd://h list",
                "leasehold --url etcd://i list",
                "with the password in the URL: leasehold --url redis://h list",
                "with the password in the URL: leasehold --url redis://root@h list",
            ]
        );
        let of = |origin| reached(&Given { url: "redis://h".into(), origin }, "redis").command("list");
        assert_eq!(of(Origin::Variable), "leasehold --url redis://h list");
        assert_eq!(of(Origin::Default), "leasehold list");
    }
}
