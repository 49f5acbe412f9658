//! Memos: a small record beside a name, in a side key that expires by itself. Two scripts read and write it, see
//! `lua/memo.lua`.

use std::time::Duration;

use leasehold_core::{
    BoxFuture, ClaimId, EngineError, Fault, Followed, HoldAfter, MAX_MEMO_BYTES, Memo, MemoKind, MemoVersion,
    MemoWrite, Memos, Name, Token, Written, digest_text, foreign_memo_error, kind_error, read_digest,
};

use crate::{
    RedisEngine,
    engine::unknown_layout,
    error::script_error,
    outbox::Values,
    reach::Route,
    reply::{Reply, unreadable},
    scripts::{Item, Script, millis},
    token_counter::LINEAGE,
};

/// The version of the stored text.
const VERSION: &str = "1";
/// The number of blanks before the bytes of a memo.
const HEADER_WORDS: usize = 6;

impl RedisEngine {
    async fn read_memo(&self, name: &Name) -> Result<Option<Memo>, EngineError> {
        let keys = self.keys(name)?;
        let item = |_: &Route| Ok([Item::new(&keys)].into());
        let mut reply = Reply::new(self.reach.run(keys.slot, Script::ReadMemo, item).await?);
        match reply.text()?.as_str() {
            "none" => Ok(None),
            "memo" => {
                let (text, left, is_held) = (reply.bytes()?, reply.millis()?, reply.number()? == 1);
                let left = left.ok_or_else(unreadable)?;
                read_text(&text, left, is_held)
                    .map_or_else(|| Err(foreign_memo_error(&keys.memo())), |memo| Ok(Some(memo)))
            }
            "foreign" => Err(foreign_memo_error(&keys.memo())),
            "layout" => Err(unknown_layout()),
            other => Err(script_error(other)),
        }
    }

    /// Writes a memo. If replicas must have it (`wait=`), the hold ends by a second request, when they have the memo:
    /// otherwise a fail-over could free the name without the memo.
    async fn write_memo(&self, write: &MemoWrite) -> Result<Written, EngineError> {
        if self.client.config.wait == 0 {
            return self.send_memo(write, write.after).await.map(|(written, _)| written);
        }
        let (written, route) = self.send_memo(write, HoldAfter::Keep).await?;
        if written == Written::Done {
            route.conn.wait_for_replicas(route.destination).await?;
        }
        match (written, write.after) {
            (Written::Done, HoldAfter::Release) => {
                self.send_memo(write, HoldAfter::Release).await.map(|(written, _)| written)
            }
            _ => Ok(written),
        }
    }

    /// Sends the write of a memo, and returns the answer of the server and the route to it.
    async fn send_memo(&self, write: &MemoWrite, after: HoldAfter) -> Result<(Written, Route), EngineError> {
        let keys = self.keys(&write.name)?;
        let mut request = self.reach.request(keys.slot);
        loop {
            let route = request.route().await?;
            let item = self.memo_item(&route, write, after)?;
            match route.run(Script::WriteMemo, [item].into()).await {
                Ok(reply) => return self.read_written(reply, write, after).map(|written| (written, route)),
                Err(refused) => request.retry(refused).await?,
            }
        }
    }

    /// The arguments of `lua/write_memo.lua`.
    fn memo_item(&self, route: &Route, write: &MemoWrite, after: HoldAfter) -> Result<Item, EngineError> {
        let (keys, memo) = (self.keys(&write.name)?, &write.memo);
        let item = match after {
            HoldAfter::Keep => Item::new(&keys).grant(write.version.id, Some(write.hold_token)).text(b"keep"),
            HoldAfter::Release => {
                self.reach.stop_waiting(keys.slot, write.version.id);
                self.release_item(route, &write.release())?
            }
        };
        let print = digest_text(memo.digest());
        let (MemoVersion { id, number }, token) = (write.version, write.token.number);
        let header = format_args!("{VERSION} {} {id} {number:020} {token} {print} ", memo.kind());
        Ok(item.formatted(header).number(millis(memo.keep())).text(memo.bytes()))
    }

    /// Notifies the clients that follow the memo of a name. They also poll, so an error is ignored.
    pub(crate) async fn notify_followers(&self, name: &Name) {
        let Ok(keys) = self.keys(name) else { return };
        let item = |_: &Route| Ok([Item::new(&keys).text(b"").text(b"notify")].into());
        let _ = self.reach.run(keys.slot, Script::FollowMemo, item).await;
    }

    /// Reads the answer of `lua/write_memo.lua`.
    fn read_written(
        &self,
        reply: Values,
        write: &MemoWrite,
        after: HoldAfter,
    ) -> Result<Written, EngineError> {
        let answer = Reply::new(reply).text()?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("done" | "unwoken", _) => {
                if after == HoldAfter::Keep {
                    self.followers.add_writer(write.version.id);
                } else {
                    self.followers.forget_writer(write.version.id);
                    // "freed" or "unwoken": the words of a release.
                    let word = if answer == "done" { "freed" } else { &answer };
                    self.read_released(word, &write.release());
                }
                Ok(Written::Done)
            }
            ("overtaken", _) => Ok(Written::Overtaken),
            ("kind", found) => match MemoKind::new(found) {
                Ok(found) => Err(kind_error(&found, write.memo.kind())),
                Err(_) => Err(foreign_memo_error(&self.keys(&write.name)?.memo())),
            },
            ("foreign", _) => Err(foreign_memo_error(&self.keys(&write.name)?.memo())),
            // The hold ended and the memo is stored, but the claim may have left more.
            ("partial", error) => Err(EngineError::new(Fault::Unknown, script_error(error).message)),
            _ => Err(script_error(&answer)),
        }
    }
}

/// Reads the stored text of a memo; `None` if leasehold did not write it.
pub(crate) fn read_text(text: &[u8], left: Duration, is_held: bool) -> Option<Memo> {
    let mut parts = text.splitn(HEADER_WORDS + 1, |&byte| byte == b' ');
    let mut word = || std::str::from_utf8(parts.next()?).ok();
    if word()? != VERSION {
        return None;
    }
    let kind = MemoKind::new(word()?).ok()?;
    let id = ClaimId::read(word()?)?;
    let version = MemoVersion { id, number: word()?.parse().ok()? };
    let token = Token { lineage: LINEAGE, number: word()?.parse().ok()? };
    let print = read_digest(word()?)?;
    let bytes = parts.next().filter(|bytes| bytes.len() <= MAX_MEMO_BYTES)?.to_vec();
    Some(Memo { kind, bytes, print, version, token, left, is_held })
}

impl Memos for RedisEngine {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(self.read_memo(name))
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(self.write_memo(write))
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        Some(self.followers.follow(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn read(text: &str) -> Option<Memo> {
        read_text(text.as_bytes(), Duration::from_secs(1), true)
    }

    #[test]
    fn only_what_leasehold_wrote_is_a_memo() {
        let number = "00000000000000000007";
        let print = digest_text(Some(&std::array::from_fn(|index| index as u8 * 8)));
        let memo = read(&format!("1 once {ID} {number} 17 {print} a b\0\n")).unwrap();
        assert_eq!((memo.kind.as_str(), &memo.bytes[..]), ("once", &b"a b\0\n"[..]));
        assert_eq!((memo.version.number, memo.token.number, memo.print.unwrap()[31]), (7, 17, 248));
        assert_eq!(read(&format!("1 once {ID} {number} 17 - ")).unwrap().print, None);
        let largest = format!("1 once {ID} {number} 17 - {}", "x".repeat(MAX_MEMO_BYTES));
        assert_eq!(read(&largest).unwrap().bytes.len(), MAX_MEMO_BYTES);
        for foreign in [
            String::new(),
            "1".to_owned(),
            format!("1 once {ID} {number} 17 -"),
            format!("2 once {ID} {number} 17 - x"),
            format!("1 Once {ID} {number} 17 - x"),
            format!("1 once {} {number} 17 - x", &ID[1..]),
            format!("1 once {ID} - 17 - x"),
            format!("1 once {ID} {number} x - x"),
            format!("1 once {ID} {number} 17 {} x", &print[1..]),
            format!("1 once {ID} {number} 17 {}+1 x", &print[2..]),
            largest + "x",
        ] {
            assert!(read(&foreign).is_none(), "{foreign:.100}");
        }
    }
}
