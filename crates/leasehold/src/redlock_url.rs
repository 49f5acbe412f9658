//! Opens the Redlock engine that a URL names.

use std::sync::Arc;

use leasehold_core::Error;
use leasehold_redis::{RedlockConfig, RedlockEngine};

use crate::{
    connect::Connect,
    open::{EngineHandle, Opened, with_tls},
    url::Url,
};

/// Opens the engine, with the options of the URL and of the caller.
pub(crate) fn open_redlock(url: &mut Url, connect: &Connect) -> Result<Opened, Error> {
    let mut config = RedlockConfig::from_url(&url.rest)?;
    if let Some(timeout) = connect.connect_timeout {
        config = config.each(|node| Ok(node.connect_timeout(timeout)))?;
    }
    let file = url.take("password_file").map(leasehold_core::Password::file);
    if let Some(password) = file.or(connect.password.clone()) {
        config = config.password(password);
    }
    if let Some(prefix) = url.take("prefix") {
        config = config.each(|node| node.prefix(&prefix))?;
    }
    if let Some(db) = url.take("db") {
        let db = db.parse().map_err(|_| Error::misconfigured("the URL option db is not a number"))?;
        config = config.each(|node| Ok(node.db(db)))?;
    }
    if let Some(timeout) = url.take_duration("node_timeout")? {
        config = config.node_timeout(timeout)?;
    }
    if let Some(max_ttl) = url.take_duration("max_ttl")? {
        config = config.max_ttl(max_ttl)?;
    }
    if config.wants_tls() {
        config = with_tls!(url, connect, config, tls => config.tls(&tls));
    }
    url.check_all_taken()?;
    let engine = Arc::new(RedlockEngine::new(config, &leasehold_core::Env::system()));
    Ok(Opened { engine, handle: EngineHandle::Nothing })
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use crate::Locks;

    #[test]
    fn options_are_read_and_invalid_redlocks_refused() {
        for url in [
            "redlock://a:1,b,c",
            "redlock://u:hunter2@a,v:x@b/2,@c?prefix=x:&node_timeout=50ms&max_ttl=10m&connect_timeout=1s",
            "redlock://rediss://u:hunter2@a,rediss://b,c?ca=/ca.pem",
            "redlock://a,b,c,d,e?db=3&password_file=/p",
        ] {
            Locks::connect(url).unwrap();
        }
        for (url, expected) in [
            ("redlock://u:hunter2@a", "write redis://"),
            ("redlock://u:hunter2@a,b", "3 independent masters"),
            ("redlock://u:hunter2@a,b,c,d", "3 or 5"),
            ("redlock://u:hunter2@a,b,a", "twice"),
            ("redlock://u:hunter2@a,b,c?node_timeout=10s", "node_timeout is out of range"),
            ("redlock://u:hunter2@a,b,c?node_timeout=10", "node_timeout"),
            ("redlock://u:hunter2@a,b,c?max_ttl=500ms", "max_ttl is out of range"),
            ("redlock://u:hunter2@a,b,c?db=x", "db is not a number"),
            ("redlock://u:hunter2@a,b,c?ca=/ca.pem", "\"ca\" is unknown"),
            ("redlock://u:hunter2@a,b,c?wait=1", "\"wait\" is unknown"),
            ("redlock://u:hunter2@a,b,c?stale_deadline=reclaim", "\"stale_deadline\" is unknown"),
            ("redlock://rediss://u:hunter2@a,b,c?cert=/c", "cert and key belong together"),
        ] {
            let error = Locks::connect(url).err().unwrap();
            let text = error.to_string();
            assert!(error.is_misconfigured() && text.contains(expected), "{url}: {text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
