//! What the client of a server needs, whichever server it is: connections, endpoints, maintenance.

pub(crate) mod bounded;
pub(crate) mod contact;
pub(crate) mod contended_names;
pub(crate) mod digest_text;
pub(crate) mod endpoint;
pub(crate) mod link;
pub(crate) mod mailbox;
pub(crate) mod maintenance;
pub(crate) mod password;
pub mod runtime;
pub(crate) mod servers_url;
