//! Data in Redis. With a token, a fence protects the data, whichever engine made the token.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold::{Locks, RedisFence, Reply, Token};
use redis::Connection;

use crate::{Failure, Floor, Protection};

/// A connection to the data.
#[derive(Clone)]
pub enum RedisData {
    /// Through a fence. It belongs to a client of its own, because the locks may be on another engine.
    Fenced(RedisFence),
    /// Commands without a fence, for workers without a token.
    Plain(Arc<Mutex<Connection>>),
}

impl RedisData {
    /// Connects to the data of this floor. `resource` names the fence.
    ///
    /// # Errors
    /// Those of the connection. Without a lock or with a lock of an article, the data must be on one Redis server.
    pub fn connect(floor: &Floor, resource: &str) -> Result<Self, Failure> {
        let url = floor.data_url()?;
        if floor.protection == Protection::Leasehold {
            let fence = Locks::connect(url)?.redis_fence(resource);
            return Ok(Self::Fenced(fence.ok_or("the data is not on Redis")?));
        }
        Ok(Self::Plain(Arc::new(Mutex::new(redis::Client::open(url)?.get_connection()?))))
    }

    /// Runs these commands, each a list of words, and returns their replies as numbers. No value and a word such as
    /// `OK` count as 0. With a fence all commands are one step, which fails if the fence has seen a larger token.
    ///
    /// # Errors
    /// Those of a fence, or of the connection.
    pub async fn run(&self, token: Option<Token>, commands: &[&[&str]]) -> Result<Vec<usize>, Failure> {
        match self {
            Self::Fenced(fence) => {
                let token = token.ok_or("a fence needs a token")?;
                fence.write(token, commands).await?.iter().map(number).collect()
            }
            Self::Plain(connection) => {
                let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                let mut step = redis::pipe();
                // A worker that is killed has done all commands of a step, or none.
                step.atomic();
                for words in commands {
                    step.add_command(redis::cmd(words[0]).arg(&words[1..]).to_owned());
                }
                let replies: Vec<Option<String>> = step.query(&mut *connection)?;
                Ok(replies.iter().map(|reply| of_text(reply.as_deref())).collect())
            }
        }
    }
}

fn number(reply: &Reply) -> Result<usize, Failure> {
    match reply {
        Reply::Number(number) => Ok(usize::try_from(*number)?),
        other => Ok(of_text(other.text())),
    }
}

/// The number in a reply. No value and a word count as 0.
fn of_text(reply: Option<&str>) -> usize {
    reply.and_then(|text| text.parse().ok()).unwrap_or(0)
}
