//! What one server says of itself, by its four-letter words, and by the timeouts that it grants.

use std::time::Duration;

use leasehold_core::{Endpoint, EngineError, Fault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    config::Config,
    conn::Conn,
    runtime,
    wire::{Close, Hello, Op, Writer},
    words::{self, Answer},
};

/// The time limit for one handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// A timeout below every bound of a server, and one above, in milliseconds.
const SHORTEST: i32 = 1;
const LONGEST: i32 = 10_000_000;
/// The xid of the only request of a handshake.
const CLOSE_XID: i32 = 1;
/// The length of the header of an answer, with its length.
const ANSWER_BYTES: usize = 20;
/// How often a server is asked whether it forces its log to the disk. The log of a follower may be behind.
const SYNC_LOOKS: usize = 3;
/// The password of a session that does not exist yet.
const NO_PASSWORD: [u8; 16] = [0; 16];

/// The longest tick for which the deadlines of holds leave room.
pub(crate) const LONGEST_TICK: Duration = Duration::from_secs(3);

/// What a look is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The guarantee, which programs may ask for often: sessions are made only if the reports leave a question open.
    Guarantee,
    /// A diagnosis.
    Diagnosis,
}

/// What is known of one server.
#[derive(Clone, Debug)]
pub(crate) struct ServerLook {
    pub(crate) srvr: Answer,
    pub(crate) mntr: Answer,
    pub(crate) conf: Answer,
    /// The shortest and the longest timeout that the server grants; `None` if it makes no session, or was not asked.
    pub(crate) timeouts: Option<(Duration, Duration)>,
    /// Whether the server waits until its log is on the disk; `None` if that cannot be told.
    pub(crate) forces_log: Option<bool>,
    /// The moment after which the certificate of the server is no longer valid, since 1970; `None` without TLS, or if
    /// it cannot be read.
    pub(crate) certificate_end: Option<Duration>,
}

impl ServerLook {
    /// Asks a server. Creates sessions without nodes and closes them, as every look of an operator does.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(crate) async fn at(
        config: &Config,
        endpoint: &Endpoint,
        purpose: Purpose,
    ) -> Result<Self, EngineError> {
        let (srvr, certificate_end) = words::ask_and_read_certificate(config, endpoint, "srvr").await?;
        let conf = words::ask(config, endpoint, "conf").await?;
        let mut mntr = words::ask(config, endpoint, "mntr").await?;
        let mut forces_log = forces_log(&srvr, &mntr, None);
        let is_answered = conf.report().is_some() && (forces_log.is_some() || mntr.report().is_none());
        let timeouts = if purpose == Purpose::Guarantee && is_answered {
            None
        } else {
            granted_timeouts(config, endpoint).await.ok()
        };
        for _ in 0..SYNC_LOOKS {
            if forces_log == Some(true) || timeouts.is_none() || mntr.report().is_none() {
                break;
            }
            // The sessions above were changes, which the log has by now, or has soon.
            let newer = words::ask(config, endpoint, "srvr").await?;
            mntr = words::ask(config, endpoint, "mntr").await?;
            forces_log = self::forces_log(&srvr, &mntr, Some(&newer));
            if forces_log != Some(true) {
                granted_timeouts(config, endpoint).await?;
            }
        }
        Ok(Self { srvr, mntr, conf, timeouts, forces_log, certificate_end })
    }

    /// The tick of the server; `None` if that cannot be told.
    pub(crate) fn tick(&self) -> Option<Duration> {
        self.conf.report()?.millis("tickTime")
    }

    /// The tick that is longer than deadlines allow for, if it is, or may be. Without a setting a server grants no
    /// timeout below two ticks.
    pub(crate) fn long_tick(&self) -> Option<Duration> {
        let most = || self.timeouts.map(|(shortest, _)| shortest / 2);
        self.tick().or_else(most).filter(|tick| *tick > LONGEST_TICK)
    }
}

/// Whether a server forces its log to the disk, by the number of times that it did, and by the newest change before and
/// after that number was read. The number alone proves nothing while nothing changes.
fn forces_log(srvr: &Answer, mntr: &Answer, newer: Option<&Answer>) -> Option<bool> {
    if mntr.report()?.number("zk_cnt_fsynctime")? > 0 {
        return Some(true);
    }
    let zxid = |answer: &Answer| answer.report()?.number("Zxid");
    (zxid(newer?)? > zxid(srvr)?).then_some(false)
}

/// The shortest and the longest timeout that a server grants.
async fn granted_timeouts(config: &Config, endpoint: &Endpoint) -> Result<(Duration, Duration), EngineError> {
    Ok((granted(config, endpoint, SHORTEST).await?, granted(config, endpoint, LONGEST).await?))
}

/// The timeout that a server grants for this one. Closes the session.
async fn granted(config: &Config, endpoint: &Endpoint, timeout_millis: i32) -> Result<Duration, EngineError> {
    let hello = Hello { timeout_millis, session: 0, password: &NO_PASSWORD };
    let handshake = async {
        let ((mut read, mut write), welcome) = Conn::handshake(config, endpoint, &hello).await?;
        let mut message = Writer::new();
        message.int(CLOSE_XID).int(Close::CODE);
        let mut answer = [0; ANSWER_BYTES];
        let closed = async {
            write.write_all(&message.finish()).await?;
            write.flush().await?;
            read.read_exact(&mut answer).await
        };
        // The granted timeout is known, and a session that was not closed ends by itself.
        let _ = closed.await;
        Ok(Duration::from_millis(u64::try_from(welcome.timeout_millis).unwrap_or(0)))
    };
    let timed_out = || Err(EngineError::new(Fault::Retry, format!("{endpoint} makes no session in time")));
    runtime::within(HANDSHAKE_TIMEOUT, handshake).await.unwrap_or_else(timed_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn srvr(zxid: &str) -> Answer {
        Answer::read(&format!("Zookeeper version: 3.8.0\nZxid: {zxid}\nMode: standalone\n"))
    }

    #[test]
    fn a_log_is_not_forced_only_if_changes_and_no_syncs_are_seen() {
        let mntr = |count: u32| Answer::read(&format!("zk_cnt_fsynctime\t{count}\n"));
        assert_eq!(forces_log(&srvr("0x5"), &mntr(1), None), Some(true));
        assert_eq!(forces_log(&srvr("0x5"), &mntr(0), None), None);
        assert_eq!(forces_log(&srvr("0x5"), &mntr(0), Some(&srvr("0x5"))), None, "nothing changed");
        assert_eq!(forces_log(&srvr("0x5"), &mntr(0), Some(&srvr("0x9"))), Some(false));
        let refused = Answer::read("mntr is not executed because it is not in the whitelist.");
        assert_eq!(forces_log(&srvr("0x5"), &refused, Some(&srvr("0x9"))), None);
        let older = Answer::read("zk_avg_latency\t0\n");
        assert_eq!(forces_log(&srvr("0x5"), &older, Some(&srvr("0x9"))), None, "before 3.6");
    }

    #[test]
    fn a_long_tick_is_found_by_the_setting_or_by_the_shortest_timeout() {
        let look = |conf: &str, shortest: u64| ServerLook {
            srvr: srvr("0x1"),
            mntr: Answer::NotAllowed,
            conf: Answer::read(conf),
            timeouts: Some((Duration::from_millis(shortest), Duration::from_secs(40))),
            forces_log: None,
            certificate_end: None,
        };
        let refused = "conf is not executed because it is not in the whitelist.";
        for (conf, shortest, long) in [
            ("tickTime=2000\n", 4000, None),
            ("tickTime=3000\n", 6000, None),
            ("tickTime=4000\n", 1000, Some(4)),
            ("tickTime=2000\n", 20_000, None),
            (refused, 6000, None),
            (refused, 8000, Some(4)),
        ] {
            assert_eq!(look(conf, shortest).long_tick(), long.map(Duration::from_secs), "{conf} {shortest}");
        }
    }
}
