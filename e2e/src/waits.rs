//! Reads for how long threads were ready but did not run, as the kernel counts it. Also lists the descendants of a
//! process.

use std::{collections::HashMap, fs, path::Path};

/// The total time for which each thread had waited at the last call, in nanoseconds, by process and thread.
#[derive(Default)]
pub(crate) struct Waits(HashMap<(u32, u32), u64>);

impl Waits {
    /// The longest time, in nanoseconds, for which a thread of these processes has waited for a processor since the
    /// last call. Threads that did not exist at the last call do not count.
    pub(crate) fn longest(&mut self, processes: &[u32]) -> u64 {
        let (mut longest, mut current) = (0, HashMap::new());
        for &process in processes {
            for thread in numbers(Path::new(&format!("/proc/{process}/task"))) {
                let stat = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat"));
                let Some(waited) = stat.ok().and_then(|stat| stat.split(' ').nth(1)?.parse().ok()) else {
                    continue;
                };
                let previous = self.0.get(&(process, thread)).copied().unwrap_or(waited);
                longest = longest.max(waited.saturating_sub(previous));
                current.insert((process, thread), waited);
            }
        }
        self.0 = current;
        longest
    }
}

/// All descendants of a process.
pub(crate) fn descendants(process: u32) -> Vec<u32> {
    let mut parents: HashMap<u32, Vec<u32>> = HashMap::new();
    for child in numbers(Path::new("/proc")) {
        if let Some(parent) = parent(child) {
            parents.entry(parent).or_default().push(child);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![process]);
    while let Some(process) = next.pop() {
        let children = parents.remove(&process).unwrap_or_default();
        next.extend(&children);
        found.extend(children);
    }
    found
}

/// The parent of a process.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program may contain brackets, so the state is looked for after the last bracket.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The numeric names in a directory.
fn numbers(dir: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::{
        process::{self, Command},
        thread,
    };

    use super::*;

    #[test]
    fn a_child_and_its_child_are_found() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().expect("there is sh");
        let mut found = Vec::new();
        while found.len() < 2 {
            thread::yield_now();
            found = descendants(process::id());
            found.retain(|pid| *pid == child.id() || parent(*pid) == Some(child.id()));
        }
        assert!(found.contains(&child.id()), "{found:?}");
        let grandchild = found.into_iter().find(|pid| *pid != child.id()).expect("there are two");
        drop(Command::new("kill").arg(grandchild.to_string()).status());
        child.wait().expect("it ends with its child");
    }

    /// The test starts more threads than there are processors, so at least one of them waits.
    #[test]
    fn a_crowd_of_threads_waits_for_processors() {
        let mut waits = Waits::default();
        assert_eq!(waits.longest(&[process::id()]), 0, "the first call has no earlier values");
        let many = thread::available_parallelism().map_or(2, |cores| 4 * cores.get());
        let done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..many {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let mut longest = 0;
            while longest == 0 {
                thread::yield_now();
                longest = waits.longest(&[process::id()]);
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
