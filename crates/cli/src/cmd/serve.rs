//! `leasehold serve`: the page for operators.

use std::{path::Path, time::Duration};

use leasehold::Locks;
use leasehold_serve::{EngineSource, ProxySettings, Server, Settings, StartError, TlsFiles};

use super::{connect, print, run::wait_failure};
use crate::{
    args, engines,
    event_loop::EventLoop,
    exit::{self, Failure},
    plan,
    signals::{Signals, interrupts_wait},
    source,
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
        for (url, _) in plan::urls(flags, require_url)? {
            let name = engines::name_of(&url);
            let same = sources.iter().filter(|source| source.locks.profile().engine == name).count();
            let label = if same == 0 { name.to_owned() } else { format!("{name}-{}", same + 1) };
            sources.push(EngineSource { label, locks: connect(&url)?, breaker: None });
        }
    }
    for text in &args.engine {
        let (label, url) = labelled(text)?;
        sources.push(EngineSource { label: label.to_owned(), locks: locks(url)?, breaker: None });
    }
    for text in &args.break_engine {
        let (label, url) = labelled(text)?;
        let Some(source) = sources.iter_mut().find(|source| source.label == label) else {
            let message = format!("--break-engine: no engine has the label {label:?}");
            return Err(Failure::new(exit::USAGE, message));
        };
        source.breaker = Some(locks(url)?);
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

/// The locks of a URL, or of a file with one.
fn locks(url: &str) -> Result<Locks, Failure> {
    let url = match url.strip_prefix('@') {
        Some(path) => source::url_of_file(Path::new(path))?,
        None => url.to_owned(),
    };
    engines::check_built_in(&url)?;
    connect(&url)
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
