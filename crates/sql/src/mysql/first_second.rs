//! The second in which a server was started.
//!
//! `UUID_SHORT()`, from which tokens are made, begins with that second, and counts up from it. A server that is killed
//! within the second, and is started again in it, makes the same numbers again. So nothing is granted in that second.

use std::time::Duration;

use leasehold_core::Fault;

use super::{conn::Conn, error::Commits, server::Server};
use crate::{database::Failed, runtime};

const UPTIME: &str = "SHOW GLOBAL STATUS WHERE Variable_name = 'Uptime'";
/// The difference between two times in whole seconds: from 1 on, the second of the start is over.
const LEAST_UPTIME: Duration = Duration::from_secs(1);
/// The time between two questions for the uptime.
const INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of these questions. The second is over before that, and connecting has more time.
const MAX_QUESTIONS: usize = 15;

/// Waits until the second is over, and returns for how long the server has run.
///
/// # Errors
/// If the server reports no uptime, and if the second does not end, because the clock of the session stands still.
pub(crate) async fn wait_until_over(conn: &mut Conn, server: &Server) -> Result<Duration, Failed> {
    let mut uptime = server.uptime()?;
    for _ in 0..MAX_QUESTIONS {
        if uptime >= LEAST_UPTIME {
            return Ok(uptime);
        }
        runtime::sleep(INTERVAL).await;
        let sets = conn.execute(UPTIME).await.map_err(|error| error.classify(Commits::Never))?;
        uptime = Server::read(sets).uptime()?;
    }
    let message = "it was started in this second, in which its tokens could be those of an earlier start, or its clock was set back behind its start";
    Err(Failed::new(Fault::Retry, message))
}
