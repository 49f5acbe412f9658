//! A fence around data on the server: in one step it compares the token of a holder with the largest token that it was
//! shown, and writes only if the holder's token is not smaller. So it refuses the writes of a holder after a newer
//! holder has shown its larger token.

use std::sync::Arc;

use leasehold_core::EngineError;
use redis::Value;

use crate::{
    RedisEngine,
    keys::fence_key,
    reach::Route,
    reply::unreadable,
    scripts::{Item, Script},
};

/// Guards a resource on the server that stores the locks: the fence stores the largest token that it was shown, and
/// refuses writes with a smaller token (Kleppmann, "How to do distributed locking", 2016).
///
/// The key of the fence, `leasehold:{TAG}f` with the prefix of the locks and the resource after it, stores that largest
/// token and never expires. The user must delete this key together with the resource.
#[derive(Clone, Debug)]
pub struct Fence {
    engine: Arc<RedisEngine>,
    key: String,
    slot: u16,
}

/// The outcome of [`Fence::write`].
#[derive(Clone, Debug, PartialEq)]
pub enum Guarded {
    /// All commands were executed; the server's replies to them.
    Done(Vec<Reply>),
    /// No command was executed: the fence was shown this larger token earlier.
    Overtaken(u64),
}

/// The server's reply to a command.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// Null: there is no value.
    Nothing,
    /// A number.
    Number(i64),
    /// Bytes, or a word like `OK`.
    Bytes(Vec<u8>),
    /// Several replies.
    List(Vec<Reply>),
}

impl Fence {
    /// The fence around `resource`, which is any text that all holders agree on.
    #[must_use]
    pub fn new(engine: Arc<RedisEngine>, resource: &str) -> Self {
        let (key, slot) = fence_key(&engine.client.config.prefix, resource);
        Self { engine, key, slot }
    }

    /// Shows the fence this token, then runs `commands`, each a list of words, in one step; it runs none of them if a
    /// larger token was shown before this one. A command that the server refuses ends the step; the commands before it
    /// stay done.
    ///
    /// Without commands this call is the *seal*: a holder must make it before its first read of the resource. Then
    /// holders with smaller tokens can no longer change what is read.
    ///
    /// # Errors
    /// The same errors as for a claim. If the answer to a step was lost, it is unknown whether the step was done; a
    /// repeated step applies its commands again.
    pub async fn write<W: AsRef<[u8]>>(&self, token: u64, commands: &[&[W]]) -> Result<Guarded, EngineError> {
        let item = |_: &Route| {
            let mut item = Item::of_key(&self.key).number(token);
            for command in commands {
                item = item.number(command.len() as u64);
                for word in *command {
                    item = item.text(word.as_ref());
                }
            }
            Ok([item].into())
        };
        let reply = self.engine.reach.run(self.slot, Script::Fence, item).await?;
        let mut reply = reply.into_iter();
        match reply.next() {
            Some(Value::Int(1)) => Ok(Guarded::Done(reply.map(read).collect::<Result<_, _>>()?)),
            Some(Value::Int(0)) => match reply.next().map(read) {
                Some(Ok(Reply::Bytes(token))) => {
                    let token = std::str::from_utf8(&token).ok().and_then(|token| token.parse().ok());
                    token.map(Guarded::Overtaken).ok_or_else(unreadable)
                }
                _ => Err(unreadable()),
            },
            _ => Err(unreadable()),
        }
    }
}

impl Reply {
    /// The bytes as text; `None` if the reply is not bytes, or the bytes are not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Converts a reply of the client library into a [`Reply`].
fn read(value: Value) -> Result<Reply, EngineError> {
    Ok(match value {
        Value::Nil => Reply::Nothing,
        Value::Int(number) => Reply::Number(number),
        Value::BulkString(bytes) => Reply::Bytes(bytes),
        Value::SimpleString(word) => Reply::Bytes(word.into_bytes()),
        Value::Okay => Reply::Bytes(b"OK".to_vec()),
        Value::Array(items) => Reply::List(items.into_iter().map(read).collect::<Result<_, _>>()?),
        _ => return Err(unreadable()),
    })
}
