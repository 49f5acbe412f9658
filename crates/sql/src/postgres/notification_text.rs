//! The text of notifications between clients: one word, the id of the claim, and the details.

use std::time::Duration;

use leasehold_core::{ClaimId, Grant, Lineage, Name, Token};

use crate::{
    row::{ClientId, duration_micros, previous_code, previous_of},
    step::{ClientMessage, ClientNotification},
};

/// The channel of a client.
pub(crate) fn channel(client: ClientId) -> String {
    format!("leasehold_{:016x}", client.0)
}

/// Encodes a notification.
pub(crate) fn write(notification: &ClientNotification) -> String {
    let ClientNotification { id, message, .. } = notification;
    match message {
        ClientMessage::Granted { grant, since } => {
            let Grant { token, tokens, ttl, previous } = grant;
            let ttl = duration_micros(ttl.unwrap_or(Duration::MAX));
            format!("granted {id} {} {tokens} {ttl} {} {since}", token.number, previous_code(*previous))
        }
        ClientMessage::Broken { name } => format!("broken {id} {name}"),
        ClientMessage::HoldEnds { remaining_micros } => format!("over {id} {remaining_micros}"),
    }
}

/// Decodes a notification; `None` for text that leasehold did not write.
pub(crate) fn read(text: &str, client: ClientId, lineage: Lineage) -> Option<ClientNotification> {
    let (word, rest) = text.split_once(' ')?;
    let (id, rest) = rest.split_once(' ')?;
    let id = ClaimId::read(id)?;
    let message = match word {
        "granted" => {
            let mut numbers = rest.split(' ').map(str::parse::<u64>);
            let mut next = || numbers.next()?.ok();
            let (number, tokens, ttl, previous) = (next()?, next()?, next()?, next()?);
            let grant = Grant {
                token: Token { lineage, number },
                tokens: u32::try_from(tokens).ok()?,
                ttl: Some(Duration::from_micros(ttl)),
                previous: previous_of(i16::try_from(previous).ok()?),
            };
            ClientMessage::Granted { grant, since: i64::try_from(next()?).ok()? }
        }
        "over" => ClientMessage::HoldEnds { remaining_micros: rest.parse().ok()? },
        "broken" => ClientMessage::Broken { name: Name::new(rest).ok()? },
        _ => return None,
    };
    Some(ClientNotification { client, id, message })
}
