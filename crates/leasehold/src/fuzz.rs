//! Fuzz targets for the parsers of user input. The tests below and `fuzz/` run them. A target panics if a parser is
//! wrong.

use crate::{connect::Connect, open::open, parse_duration, url::Url};

/// Parses a URL, and opens its engine if opening creates no directory or store and reads no file.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // The password in the sample URLs. No error and no debug output may show it.
    let secret = "hunter2";
    let assert_no_secret =
        |message: String| assert!(!message.contains(secret), "an error shows a password: {message}");
    let mut url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return assert_no_secret(format!("{error} {error:?}")),
    };
    if !url.scheme.contains(secret) {
        assert_no_secret(format!("{url:?}"));
    }
    // An engine of these URLs is not opened: that would create directories, create a store under the given name, or
    // read certificates.
    let has_side_effects = matches!(url.scheme.as_str(), "file" | "sqlite" | "memory") || text.contains("=/");
    if has_side_effects {
        return;
    }
    if let Err(error) = url.take_duration("connect_timeout").and_then(|_| open(&mut url, &Connect::default()))
    {
        // The error is checked only if the secret word is the password of a login, and occurs nowhere else. In other
        // places the word is a name, which an error may show, for instance as a scheme in small letters.
        if text.contains(":hunter2@") && text.to_ascii_lowercase().matches(secret).count() == 1 {
            assert_no_secret(format!("{error} {error:?}"));
        }
    }
}

/// Parses a duration. The same duration, written as a number of milliseconds, must give the same result.
pub fn duration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(time) = parse_duration(text) {
        let millis = format!("{}ms", time.as_millis());
        assert_eq!(parse_duration(&millis).ok(), Some(time), "{text:?}");
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::fuzz;

    #[test]
    fn urls_are_read_from_random_bytes() {
        let samples = [
            "redis://me:hunter2@host:6379/3?prefix=a%3A&connect_timeout=1s",
            "redis+unix:///run/redis.sock?db=3",
            "redis+sentinel://u:p@a:1,b:2/mymaster/3?map=a:1=b:2&sentinel_user=w&wait=2",
            "etcd://me:hunter2@[::1]:2379,host:7,b?prefix=locks",
            "etcd://a?layout=key&prefix=",
            "zookeeper://me:hunter2@a:2181,b/apps/x?layout=rw&prefix=%2Flocks",
            "postgres://me:hunter2@host:5432,g/db?listen_url=postgres://h/d&sslmode=require",
            "postgres:///db?host=h&user=me&options=-c%20x=y&target_session_attrs=any&connect_timeout=3",
            "mysql://me:hunter2@[::1]:3306/db?ssl-mode=VERIFY_CA&ssl-ca=c",
            "file:",
            // This input was found by cargo-fuzz.
            "xHUnter2x:i::hunter2@a",
        ];
        fuzz::run(&samples.map(|url| url.as_bytes().to_vec()), super::url);
    }

    #[test]
    fn durations_are_read_from_random_bytes() {
        let samples = ["1500ms", "30s", "24h", "1d", "18446744073709551615d"];
        fuzz::run(&samples.map(|text| text.as_bytes().to_vec()), super::duration);
    }
}
