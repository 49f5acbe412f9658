//! The engines of this build. A small build lacks some engines; the error for a missing engine says how to get it.

use crate::exit::{CONFIG, Failure};

/// The URL schemes of Redis.
const REDIS: &[&str] = &[
    "redis",
    "rediss",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
];

/// An engine: its URL schemes; its name, as its locks report it; and the cargo feature that builds it.
struct Engine {
    schemes: &'static [&'static str],
    name: &'static str,
    feature: &'static str,
    is_built_in: bool,
}

impl Engine {
    const fn new(schemes: &'static [&'static str], name: &'static str, is_built_in: bool) -> Self {
        Self { schemes, name, feature: name, is_built_in }
    }

    /// Changes the feature: this engine is built by the feature of another engine.
    const fn built_by(self, feature: &'static str) -> Self {
        Self { feature, ..self }
    }
}

static ENGINES: [Engine; 8] = [
    Engine::new(&["file"], "file", cfg!(feature = "file")),
    Engine::new(REDIS, "redis", cfg!(feature = "redis")),
    Engine::new(&["redlock"], "redlock", cfg!(feature = "redis")).built_by("redis"),
    Engine::new(&["etcd", "etcds"], "etcd", cfg!(feature = "etcd")),
    Engine::new(&["zookeeper", "zookeepers"], "zookeeper", cfg!(feature = "zookeeper")),
    Engine::new(&["postgres", "postgresql"], "postgres", cfg!(feature = "postgres")),
    Engine::new(&["mysql", "mariadb"], "mysql", cfg!(feature = "mysql")),
    Engine::new(&["sqlite"], "sqlite", cfg!(feature = "sqlite")),
];

/// The name of a URL's engine, as its locks report it. A URL with an unknown scheme counts as memory, an engine that is
/// of no use to a command.
pub(crate) fn name_of(url: &str) -> &'static str {
    find(url).map_or("memory", |engine| engine.name)
}

/// Refuses a URL whose engine is not in this build. The error says by which command leasehold is built with this
/// engine.
pub(crate) fn check_built_in(url: &str) -> Result<(), Failure> {
    match find(url) {
        Some(engine) if !engine.is_built_in => Err(Failure::new(CONFIG, not_built_in(engine.feature))),
        // An unknown scheme is no error here, because it is reported when the URL is parsed.
        _ => Ok(()),
    }
}

/// The engine of a URL; `None` for an unknown scheme, and for memory.
fn find(url: &str) -> Option<&'static Engine> {
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    ENGINES.iter().find(|engine| engine.schemes.contains(&&*scheme))
}

/// The message for an engine that is not in this build.
fn not_built_in(feature: &str) -> String {
    format!(
        "this build has no {feature} engine; in a clone of leasehold, \
         `cargo build --release -p leasehold-cli` builds all engines, and \
         `cargo build --release -p leasehold-cli --no-default-features --features file,{feature},tls` \
         adds {feature} alone"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_engine_names_the_command_that_builds_it() {
        for Engine { schemes, feature, is_built_in: is_there, .. } in &ENGINES {
            for scheme in *schemes {
                let answer = check_built_in(&format!("{scheme}://user:secret@host"));
                let code = answer.map_err(|failure| failure.code);
                assert_eq!(code, if *is_there { Ok(()) } else { Err(CONFIG) }, "{scheme}");
            }
            let message = not_built_in(feature);
            assert!(message.contains("`cargo build --release -p leasehold-cli`"), "{message}");
            assert!(message.contains(&format!("--features file,{feature},tls`")), "{message}");
        }
        assert!(check_built_in("nonsense://x").is_ok(), "the parser of URLs refuses this");
    }

    #[test]
    fn engine_names_match_those_of_the_locks() {
        for url in [
            "file:",
            "rediss://h",
            "redlock://h,i,j",
            "ETCD://h",
            "zookeeper://h",
            "postgresql://h/db",
            "mariadb://h/db",
        ] {
            let locks = leasehold::Locks::connect(url).unwrap();
            assert_eq!(name_of(url), locks.profile().engine, "{url}");
        }
    }
}
