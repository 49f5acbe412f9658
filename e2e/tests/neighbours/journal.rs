//! The journal of programs that share a lock, and its evaluation.

use std::collections::BTreeSet;

/// The figures of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Sections that began: ours, theirs.
    pub(crate) turns: [usize; 2],
    /// Holders that were killed: ours, theirs.
    pub(crate) killed: [usize; 2],
    /// Sections of ours that ended because the hold was lost.
    pub(crate) doubted: usize,
    /// Sections that began while another program was in its section and was not killed, without a fail-over that may
    /// lose acknowledged writes.
    pub(crate) overlaps: usize,
    /// The same, during such a fail-over or within a ttl after it.
    pub(crate) excused: usize,
    /// The same, while the machine did not run the other program for longer than its lease.
    pub(crate) slept: usize,
    /// Tokens that did not grow; during such a fail-over only tokens that were granted twice.
    pub(crate) tokens: usize,
}

/// A program in its section.
struct Holder<'a> {
    program: &'a str,
    /// The sections that began meanwhile: without and with the excuse of a fail-over.
    overlaps_with: [usize; 2],
    lossy: bool,
}

/// Judges the lines of a journal: `enter WHO TOKEN`, with `-` without a token; `leave WHO held|lost|slept`; `killed
/// WHO`;
/// `lossy begins` and `lossy ends` around a fail-over that may lose writes.
pub(crate) fn judge(journal: &str) -> Tally {
    let mut tally = Tally::default();
    let mut holders: Vec<Holder<'_>> = Vec::new();
    let (mut lossy, mut newest, mut known) = (false, 0, BTreeSet::new());
    for line in journal.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let out = holders.iter().position(|other| Some(&other.program) == words.get(1));
        match (&words[..], out) {
            (["enter", program, token], _) => {
                tally.turns[side(program)] += 1;
                for other in &mut holders {
                    other.overlaps_with[usize::from(lossy || other.lossy)] += 1;
                }
                holders.push(Holder { program, overlaps_with: [0, 0], lossy });
                if let Ok(token) = token.parse::<u64>() {
                    tally.tokens += usize::from(!known.insert(token) || (token < newest && !lossy));
                    newest = newest.max(token);
                }
            }
            (["leave", program, how], Some(index)) => {
                let [overlaps, excused] = holders.remove(index).overlaps_with;
                tally.doubted += usize::from(*how == "lost" && side(program) == 0);
                if *how == "slept" {
                    tally.slept += overlaps + excused;
                } else {
                    tally.overlaps += overlaps;
                    tally.excused += excused;
                }
            }
            (["killed", program], Some(index)) => {
                let [overlaps, excused] = holders.remove(index).overlaps_with;
                tally.killed[side(program)] += 1;
                tally.overlaps += overlaps;
                tally.excused += excused;
            }
            (["lossy", change], _) => lossy = *change == "begins",
            _ => panic!("unexpected line: {line}"),
        }
    }
    tally
}

/// The program whose `enter` is the last line.
pub(crate) fn holder_of(journal: &str) -> Option<&str> {
    let mut words = journal.lines().next_back()?.split(' ');
    (words.next() == Some("enter")).then(|| words.next()).flatten()
}

/// 0 for ours, 1 for theirs.
pub(crate) fn side(program: &str) -> usize {
    usize::from(!program.starts_with("ours"))
}

#[test]
fn overlaps_are_counted_by_their_cause() {
    let fair = "enter ours-0 5\nleave ours-0 held\nenter theirs-0 -\nkilled theirs-0\n\
                enter ours-1 7\nleave ours-1 held\n";
    let expected = Tally { turns: [2, 1], killed: [0, 1], ..Tally::default() };
    assert_eq!(judge(fair), expected);
    for (journal, found) in [
        ("enter ours-0 5\nenter theirs-0 -\nleave ours-0 held\nleave theirs-0 held\n", [1, 0, 0, 0]),
        ("enter theirs-0 -\nenter ours-0 5\nleave ours-0 held\nleave theirs-0 held\n", [1, 0, 0, 0]),
        ("enter ours-0 5\nenter ours-1 6\nkilled ours-0\nleave ours-1 held\n", [1, 0, 0, 0]),
        (
            "lossy begins\nenter ours-0 5\nenter theirs-0 -\nleave ours-0 lost\nleave theirs-0 held\n",
            [0, 1, 0, 0],
        ),
        (
            "lossy begins\nlossy ends\nenter ours-0 5\nenter theirs-0 -\nleave ours-0 held\nleave theirs-0 held\n",
            [1, 0, 0, 0],
        ),
        ("enter theirs-0 -\nenter ours-0 5\nleave theirs-0 slept\nleave ours-0 held\n", [0, 0, 1, 0]),
        ("enter ours-0 5\nleave ours-0 held\nenter ours-0 4\nleave ours-0 held\n", [0, 0, 0, 1]),
        (
            "lossy begins\nenter ours-0 5\nleave ours-0 held\nenter ours-0 4\nleave ours-0 held\n",
            [0, 0, 0, 0],
        ),
        (
            "lossy begins\nenter ours-0 5\nleave ours-0 held\nenter ours-0 5\nleave ours-0 held\n",
            [0, 0, 0, 1],
        ),
    ] {
        let Tally { overlaps, excused, slept, tokens, .. } = judge(journal);
        assert_eq!([overlaps, excused, slept, tokens], found, "{journal}");
    }
    assert_eq!(holder_of("enter ours-0 5\n"), Some("ours-0"));
    assert_eq!(holder_of("enter ours-0 5\nleave ours-0 held\n"), None);
}
