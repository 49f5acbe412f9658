//! Passes the pushes of a connection to a handler.

use std::sync::Arc;

use redis::{
    PushInfo, PushKind, Value,
    aio::{AsyncPushSender, SendError},
};

/// Handles the pushes of a connection: messages that the server sends without a request.
pub(crate) trait PushHandler: Send + Sync + 'static {
    /// Handles a message on a channel.
    fn receive(&self, message: &[u8]);

    /// Handles the report that a tracked lock key changed; `None`: any of the tracked keys may have changed.
    fn invalidated(&self, lock: Option<&str>);
}

/// Adapts a handler for the client library: the library calls [`send`](AsyncPushSender::send) for each push of the
/// connection, in the order of the pushes.
pub(crate) struct PushSender<H>(pub(crate) Arc<H>);

impl<H: PushHandler> AsyncPushSender for PushSender<H> {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        match (info.kind, info.data.last()) {
            (PushKind::Message, Some(Value::BulkString(text))) => self.0.receive(text),
            (PushKind::Invalidate, Some(Value::Array(locks))) => {
                for lock in locks {
                    if let Value::BulkString(lock) = lock {
                        self.0.invalidated(Some(&String::from_utf8_lossy(lock)));
                    }
                }
            }
            // The server deleted all keys.
            (PushKind::Invalidate, _) => self.0.invalidated(None),
            _ => {}
        }
        Ok(())
    }
}
