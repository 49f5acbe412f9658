//! Seeded bugs (mutants). Each patch in `mutants/` breaks our code deliberately. Each patch names a test, which must
//! fail with the patch. If no test finds a bug, a test is missing.

mod child;
mod copy;
mod patch;
mod table;

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use self::{
    child::{CommandResult, Ending},
    copy::TreeCopy,
    patch::{Killer, Mutant},
    table::MutantResult,
};
use crate::{
    own_rules::Text,
    run::{Failure, Steps},
    workspace::Workspace,
};

/// The time limit for a build. A slow machine may build slowly, but a build that hangs must be ended.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// The page that has the table of all mutants.
const TABLE: &str = "docs/mutants.md";

/// The errors in the patches: a header that cannot be parsed, or a patch that does not apply any more.
pub(crate) fn complaints(workspace: &Workspace, patches: &[Text]) -> Vec<String> {
    let complaint = |patch: &Text| {
        let shown = workspace.shown(&patch.path);
        let checked = Mutant::read(&patch.path, &patch.text)
            .and_then(|_| patch::apply(&workspace.root, &patch.path, &["--check"]));
        Some(format!("{shown}: {}", checked.err()?))
    };
    patches.iter().filter_map(complaint).collect()
}

/// Checks that the tests find the mutants that are named. If none is named, checks this for all mutants.
pub(crate) fn run(steps: &mut Steps, workspace: &Workspace, arguments: &[&str]) -> Result<(), Failure> {
    let begin = Instant::now();
    let (options, names): (Vec<&str>, Vec<&str>) = arguments.iter().partition(|word| word.starts_with('-'));
    let writes_table = match options[..] {
        [] => false,
        ["--write"] if names.is_empty() => true,
        _ => {
            return Err(Failure::new("read the arguments", "usage: cargo xtask mutants [--write | NAME...]"));
        }
    };
    let mutants = steps.step("read the mutants", || select(workspace, &names))?;
    let runner = KillerRunner(steps.step("copy the tree", || TreeCopy::refresh(workspace))?);
    steps.step("the suite without them", || runner.check_killers_pass(&mutants))?;
    let results: Vec<MutantResult> = steps.step("the suite with each", || {
        Ok::<_, String>(mutants.iter().map(|mutant| runner.run_and_print(mutant)).collect())
    })?;
    println!("\n{}", table::terminal_table(&results));
    let failed: Vec<&str> = results
        .iter()
        .filter(|result| !result.is_killed())
        .map(|result| result.mutant.name.as_str())
        .collect();
    if !failed.is_empty() {
        return Err(Failure::new("the suite with each", format!("not killed: {}", failed.join(", "))));
    }
    if writes_table {
        let page = table::page(&results, begin.elapsed());
        return steps.step("write the table", || fs::write(workspace.root.join(TABLE), page));
    }
    Ok(())
}

/// The names of all mutants, in order.
pub(crate) fn names(workspace: &Workspace) -> Result<Vec<String>, String> {
    Ok(select(workspace, &[])?.into_iter().map(|mutant| mutant.name).collect())
}

/// The mutants whose names contain one of `names`, in order. If `names` is empty, all mutants.
fn select(workspace: &Workspace, names: &[&str]) -> Result<Vec<Mutant>, String> {
    let mut mutants = Vec::new();
    for path in workspace.files("patch").map_err(|error| error.to_string())? {
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        mutants.push(
            Mutant::read(&path, &text).map_err(|error| format!("{}: {error}", workspace.shown(&path)))?,
        );
    }
    if let Some(name) = names.iter().find(|name| !mutants.iter().any(|mutant| mutant.name.contains(**name))) {
        return Err(format!("no mutant is named {name:?}: see mutants/"));
    }
    mutants.retain(|mutant| names.is_empty() || names.iter().any(|name| mutant.name.contains(name)));
    Ok(mutants)
}

/// Runs killers in a copy of the source tree.
struct KillerRunner(TreeCopy);

impl KillerRunner {
    /// Checks that every killer passes when no mutant is applied. Otherwise its failure with a mutant would prove
    /// nothing.
    fn check_killers_pass(&self, mutants: &[Mutant]) -> Result<(), String> {
        let mut killers: BTreeMap<&Killer, Duration> = BTreeMap::new();
        for mutant in mutants {
            let budget = killers.entry(&mutant.killer).or_default();
            *budget = mutant.budget.max(*budget);
        }
        for (killer, budget) in killers {
            self.build(killer)?;
            let run = self.run(killer, budget)?;
            println!("{:6.1} s  {killer}", run.took.as_secs_f64());
            if !run.succeeded() {
                return Err(format!("`{killer}` fails without any mutant{}\n{}", run.ending(), run.output));
            }
            if run.output.contains("running 0 tests") && !run.output.contains(" ... ok\n") {
                return Err(format!("`{killer}` runs no test"));
            }
        }
        Ok(())
    }

    /// Runs the killer of a mutant, and prints the result.
    fn run_and_print<'a>(&self, mutant: &'a Mutant) -> MutantResult<'a> {
        let result = MutantResult { mutant, outcome: self.try_kill(mutant) };
        println!("{result}");
        result
    }

    /// Applies a mutant, and runs its killer.
    fn try_kill(&self, mutant: &Mutant) -> Result<CommandResult, String> {
        let _applied = self.0.apply(mutant)?;
        self.build(&mutant.killer)?;
        self.run(&mutant.killer, mutant.budget)
    }

    /// Builds the programs of a killer.
    fn build(&self, killer: &Killer) -> Result<(), String> {
        let run = child::run(&killer.build(&self.0), &self.0.log(), BUILD_LIMIT)?;
        if run.succeeded() { Ok(()) } else { Err(format!("cannot be built{}\n{}", run.ending(), run.output)) }
    }

    /// Runs a killer within its time limit.
    fn run(&self, killer: &Killer, budget: Duration) -> Result<CommandResult, String> {
        let run = child::run(&killer.run(&self.0), &self.0.log(), budget);
        self.0.empty_tmp()?;
        run
    }
}

impl CommandResult {
    fn succeeded(&self) -> bool {
        matches!(self.ended, Ending::ByItself(status) if status.success())
    }

    /// How the run ended, in words for the end of a message.
    fn ending(&self) -> String {
        match self.ended {
            Ending::ByItself(status) => format!(": it ended with {status}"),
            Ending::AtLimit => format!(": it did not end within {:.0} s", self.took.as_secs_f64()),
        }
    }
}
