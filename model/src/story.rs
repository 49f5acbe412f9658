//! Prints the worlds of the Redis model in words.

use std::fmt;

use stateright::Path;

use crate::{
    Action, Id, World,
    client::{Client, Holding, Stage},
    rules::MAX_CLIENTS,
    server::{Hold, Server, Value},
};

/// The steps to a world, and the state of the world after each step.
pub(crate) fn story(path: Path<World, Action>) -> String {
    let (mut text, mut last_action) = (String::new(), None);
    for (step, (state, next)) in path.into_vec().into_iter().enumerate() {
        if let Some(action) = last_action {
            text += &format!("{step:3}. {:<22} {state}\n", format!("{action:?}"));
        }
        last_action = next;
    }
    text
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.server)?;
        for id in (0..MAX_CLIENTS as u8).map(Id) {
            let (client, wire) = (&self.clients[id], &self.wires[id]);
            if client.stage == Stage::Idle {
                continue;
            }
            write!(f, " · {id:?} {client}")?;
            wire.requests.iter().try_for_each(|request| write!(f, ", sent {:?}", request.message))?;
            wire.reply.iter().try_for_each(|reply| write!(f, ", answered {:?}", reply.message))?;
            wire.pushes.iter().try_for_each(|push| write!(f, ", pushed {}", push.message.token))?;
            wire.late.iter().try_for_each(|(request, left)| write!(f, ", late for {left} {request:?}"))?;
        }
        if self.foreign.left > 0 {
            write!(f, " · another program holds for {}", self.foreign.left)?;
        }
        Ok(())
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lock {
            None => write!(f, "free")?,
            Some((Value::Foreign, left)) => write!(f, "foreign for {left}")?,
            Some((Value::Ours(Hold { id, token, pushed }), left)) => {
                write!(f, "{id:?}.{token}{} for {left}", if pushed { "?" } else { "" })?;
            }
        }
        if !self.queue.is_empty() {
            write!(f, ", queue {:?}", self.queue)?;
        }
        Ok(())
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stage {
            Stage::Idle => write!(f, "idle"),
            Stage::Waiting(waiting) if waiting.request_age.is_some() => write!(f, "asks"),
            Stage::Waiting(_) => write!(f, "waits"),
            Stage::Holding(Holding { token, valid_for: 0, .. }) => write!(f, "lost {token}"),
            Stage::Holding(Holding { token, valid_for, .. }) => write!(f, "holds {token} for {valid_for}"),
            Stage::Leaving(leaving) => match leaving.token {
                Some(token) => write!(f, "releases {token}"),
                None => write!(f, "gives up"),
            },
            Stage::Done => write!(f, "done"),
            Stage::Dead => write!(f, "dead"),
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'A' + self.0))
    }
}
