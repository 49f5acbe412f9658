//! The receiver of notifications.

/// Receives notifications.
pub(crate) trait NotificationHandler: Send + Sync {
    /// Handles a notification to this client.
    fn notified(&self, payload: &str);

    /// Handles the end of the connection: no more notifications arrive on it.
    fn stopped(&self);
}
