//! Rows that somebody wrote otherwise than leasehold does.

use leasehold_core::Fault;

use crate::{
    client::{Client, claim},
    rig::Rig,
};

/// H5: what the rows say cannot be read, so nobody is let in; the thread of the database goes on for all other names.
#[test]
fn whoever_claims_is_told_of_altered_rows() {
    for written in ["token = 'green'", "holder = x'00'", "expires = 'soon'"] {
        let rig = Rig::new();
        let client = Client::new(&rig.path());
        let (job, other) = (claim("job"), claim("other"));
        client.hold(&job);
        rig.does(&format!(
            "PRAGMA ignore_check_constraints = 1; UPDATE leasehold_lock SET {written} WHERE name = 'job'"
        ));
        let (fault, message) = client.refused();
        assert_eq!(fault, Fault::Misconfigured, "{written}: {message}");
        let grant = client.hold(&other);
        client.free(&other, &grant);
    }
}
