//! Every test.

use crate::{
    run::{Failure, Steps},
    workspace::Workspace,
};

/// Unit tests, integration tests and the examples in the documentation, with every feature.
pub(crate) fn all(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    let mut tests = workspace.cargo("test");
    tests.args(["--locked", "--workspace", "--all-features", "--no-fail-fast"]);
    steps.command("tests", &mut tests)?;
    steps.command("tests, peers", workspace.peers("test").arg("--locked"))
}
