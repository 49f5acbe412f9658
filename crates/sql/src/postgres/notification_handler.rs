//! Who hears what the server tells.

/// Hears notifications.
pub(crate) trait NotificationHandler: Send + Sync {
    /// Something was told to this client.
    fn heard(&self, said: &str);

    /// Nothing is heard any more.
    fn deaf(&self);
}
