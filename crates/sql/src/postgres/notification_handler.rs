//! The receiver of notifications.

/// Receives notifications.
pub(crate) trait NotificationHandler: Send + Sync {
    /// A notification to this client arrived.
    fn notified(&self, payload: &str);

    /// Notifications stopped: the connection ended.
    fn stopped(&self);
}
