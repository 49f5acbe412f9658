//! The engines of this build: a small build leaves some out, and then says how to get them.

use crate::exit::{CONFIG, Failure};

const REDIS: &[&str] = &[
    "redis",
    "rediss",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
];

/// The schemes of an engine, its feature, and whether this build has it.
const ENGINES: [(&[&str], &str, bool); 7] = [
    (&["file"], "file", cfg!(feature = "file")),
    (REDIS, "redis", cfg!(feature = "redis")),
    (&["etcd", "etcds"], "etcd", cfg!(feature = "etcd")),
    (&["zookeeper", "zookeepers"], "zookeeper", cfg!(feature = "zookeeper")),
    (&["postgres", "postgresql"], "postgres", cfg!(feature = "postgres")),
    (&["mysql", "mariadb"], "mysql", cfg!(feature = "mysql")),
    (&["sqlite"], "sqlite", cfg!(feature = "sqlite")),
];

/// Refuses a URL whose engine is not in this build, with the command that builds it in.
pub(crate) fn built_in(url: &str) -> Result<(), Failure> {
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    match ENGINES.iter().find(|(schemes, ..)| schemes.contains(&&*scheme)) {
        Some((_, feature, false)) => Err(Failure::new(CONFIG, not_built_in(feature))),
        // What is unknown is told where URLs are read.
        _ => Ok(()),
    }
}

fn not_built_in(feature: &str) -> String {
    format!(
        "this build has no {feature} engine; in a clone of leasehold, `cargo build --release -p leasehold-cli` builds all \
         engines, and `cargo build --release -p leasehold-cli --no-default-features --features file,{feature},tls` adds \
         {feature} alone"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_in_this_build_or_its_command_is_told() {
        for (schemes, feature, is_there) in ENGINES {
            for scheme in schemes {
                let answer = built_in(&format!("{scheme}://user:secret@host"));
                let code = answer.map_err(|failure| failure.code);
                assert_eq!(code, if is_there { Ok(()) } else { Err(CONFIG) }, "{scheme}");
            }
            let message = not_built_in(feature);
            assert!(message.contains("`cargo build --release -p leasehold-cli`"), "{message}");
            assert!(message.contains(&format!("--features file,{feature},tls`")), "{message}");
        }
        assert!(built_in("nonsense://x").is_ok(), "where URLs are read, this is refused");
    }
}
