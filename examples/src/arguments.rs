//! The command line of a scenario, as typed.

use std::fmt::Write as _;

use crate::{Failure, Protection};

/// What a scenario needs, for its command line.
pub struct Scenario {
    /// Where its data is.
    pub data: Data,
    /// Where the article's lock of this scenario is.
    pub textbook: TextbookPlace,
}

/// Where the data of a scenario is.
#[derive(Clone, Copy)]
pub enum Data {
    /// In files.
    Files,
    /// In files, or in a Redis that this option names.
    FilesOrRedis {
        /// The option, such as `--pot`.
        option: &'static str,
    },
    /// In a server that this option names. By default in the server of the locks, if that server is of one of these
    /// kinds, otherwise in a server of the first kind, which the scenario starts.
    Server {
        /// The option, such as `--stock`.
        option: &'static str,
        /// The beginnings of the URLs of such servers. The first is also the word for a server that is started.
        kinds: &'static [&'static str],
    },
}

/// Where the article's lock of a scenario is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TextbookPlace {
    /// On a Redis server.
    Redis,
    /// In the database with the data.
    Data,
    /// Where the locks of leasehold are: the article uses a lock as leasehold has it, but wrongly.
    Locks,
}

/// The command line of a scenario: words for servers, or URLs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Where the locks are.
    pub(crate) url: Place,
    /// Where the data is; `None` for files.
    pub(crate) data: Option<Place>,
    pub(crate) protection: Protection,
}

/// A place for locks or data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A word for a server that is started, or a URL.
    Word(String),
    /// The server of the locks (for the data), or of the data (for the locks).
    Same,
}

impl Scenario {
    /// Reads the command line.
    ///
    /// # Errors
    /// What is wrong with it, and what the program expects.
    pub(crate) fn parse(&self, words: &[String]) -> Result<Arguments, Failure> {
        let (mut url, mut data, mut protection) = (None, None, Protection::Leasehold);
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = || words.next().map(str::to_owned).ok_or(format!("{word} needs a value"));
            match word {
                "--url" => url = Some(value()?),
                "--without-lock" => protection = Protection::WithoutLock,
                "--textbook" => protection = Protection::Textbook,
                _ if Some(word) == self.data_option() => data = Some(value()?),
                _ => return Err(self.usage(word).into()),
            }
        }
        let url = self.url_of(url, protection)?;
        let (url, data) = self.places(url, data);
        Ok(Arguments { url, data, protection })
    }

    /// Without a lock no server is needed for locks, and an article's lock needs a server of its own kind.
    fn url_of(&self, url: Option<String>, protection: Protection) -> Result<Option<String>, Failure> {
        let is_redis = |url: &str| url == "redis" || url.starts_with("redis://");
        match (protection, self.textbook) {
            (Protection::WithoutLock, _) if url.is_some() => Err("without a lock there is no --url".into()),
            (Protection::WithoutLock, _) if matches!(self.data, Data::Server { .. }) => Ok(None),
            (Protection::WithoutLock, _) => Ok(Some("file".to_owned())),
            (Protection::Textbook, TextbookPlace::Redis) => match url {
                Some(url) if !is_redis(&url) => {
                    Err(format!("the article's lock of this scenario is on one Redis server, not on {url}")
                        .into())
                }
                other => Ok(Some(other.unwrap_or_else(|| "redis".to_owned()))),
            },
            (Protection::Textbook, TextbookPlace::Data) if url.is_some() => {
                Err("the article's lock of this scenario is where its stock is: give no --url".into())
            }
            _ => Ok(url),
        }
    }

    fn places(&self, url: Option<String>, data: Option<String>) -> (Place, Option<Place>) {
        let Data::Server { kinds, .. } = self.data else {
            let url = url.unwrap_or_else(|| "file".to_owned());
            return (Place::Word(url), data.map(Place::Word));
        };
        let is_such = |place: &str| kinds.iter().any(|kind| place.starts_with(kind));
        match (url, data) {
            (Some(url), None) if is_such(&url) => (Place::Word(url), Some(Place::Same)),
            (url, data) => {
                let data = Place::Word(data.unwrap_or_else(|| kinds[0].to_owned()));
                (url.map_or(Place::Same, Place::Word), Some(data))
            }
        }
    }

    const fn data_option(&self) -> Option<&'static str> {
        match self.data {
            Data::Files => None,
            Data::FilesOrRedis { option } | Data::Server { option, .. } => Some(option),
        }
    }

    fn usage(&self, word: &str) -> String {
        let mut usage = format!(
            "{word} is unknown. The options: --url WHERE (file, redis, redis-sentinel, redis-cluster, etcd, zookeeper, \
             postgres, mariadb, or a URL), --without-lock, --textbook"
        );
        if let Some(option) = self.data_option() {
            let _ = write!(usage, ", {option} WHERE (a server of these, or a URL)");
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: Scenario = Scenario { data: Data::Files, textbook: TextbookPlace::Redis };
    const REDIS: Scenario = Scenario {
        data: Data::Server { option: "--stock", kinds: &["redis"] },
        textbook: TextbookPlace::Redis,
    };
    const SQL: Scenario = Scenario {
        data: Data::Server { option: "--stock", kinds: &["postgres", "mariadb", "mysql"] },
        textbook: TextbookPlace::Data,
    };

    fn parse(scenario: &Scenario, line: &str) -> Result<(Place, Option<Place>, Protection), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let Arguments { url, data, protection } =
            scenario.parse(&words).map_err(|error| error.to_string())?;
        Ok((url, data, protection))
    }

    fn word(word: &str) -> Place {
        Place::Word(word.to_owned())
    }

    #[test]
    fn locks_and_data_are_where_the_line_says() {
        use Protection::{Leasehold, Textbook, WithoutLock};
        for (scenario, line, url, data, protection) in [
            (&FILES, "", word("file"), None, Leasehold),
            (&FILES, "--url etcd", word("etcd"), None, Leasehold),
            (&FILES, "--without-lock", word("file"), None, WithoutLock),
            (&FILES, "--textbook", word("redis"), None, Textbook),
            (&REDIS, "", Place::Same, Some(word("redis")), Leasehold),
            (&REDIS, "--url redis-cluster", word("redis-cluster"), Some(Place::Same), Leasehold),
            (&REDIS, "--url etcd", word("etcd"), Some(word("redis")), Leasehold),
            (&REDIS, "--textbook", word("redis"), Some(Place::Same), Textbook),
            (&REDIS, "--without-lock", Place::Same, Some(word("redis")), WithoutLock),
            (&SQL, "", Place::Same, Some(word("postgres")), Leasehold),
            (&SQL, "--stock mariadb", Place::Same, Some(word("mariadb")), Leasehold),
            (&SQL, "--url mysql://h/d", word("mysql://h/d"), Some(Place::Same), Leasehold),
            (&SQL, "--url etcd --stock mariadb", word("etcd"), Some(word("mariadb")), Leasehold),
            (&SQL, "--stock mariadb --textbook", Place::Same, Some(word("mariadb")), Textbook),
        ] {
            assert_eq!(parse(scenario, line), Ok((url, data, protection)), "{line}");
        }
    }

    #[test]
    fn lines_without_a_meaning_are_refused() {
        for (scenario, line, part) in [
            (&FILES, "redis", "redis is unknown. The options"),
            (&FILES, "--stock redis", "--stock is unknown"),
            (&FILES, "--url", "--url needs a value"),
            (&FILES, "--url etcd --without-lock", "there is no --url"),
            (&FILES, "--url etcd --textbook", "on one Redis server, not on etcd"),
            (&SQL, "--url etcd --textbook", "give no --url"),
        ] {
            let error = parse(scenario, line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
