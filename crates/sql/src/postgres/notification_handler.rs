//! The receiver of notifications.

/// Receives notifications.
pub(crate) trait NotificationHandler: Send + Sync {
    /// A notification to this client arrived.
    fn heard(&self, said: &str);

    /// Notifications stopped: the connection ended.
    fn deaf(&self);
}
