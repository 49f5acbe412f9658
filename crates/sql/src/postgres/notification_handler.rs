//! The receiver of notifications.

/// Receives notifications.
pub(crate) trait NotificationHandler: Send + Sync {
    /// Handles a notification to this client.
    fn handle_notification(&self, payload: &str);

    /// Handles the end of the connection: no more notifications arrive on it.
    fn handle_end(&self);
}
