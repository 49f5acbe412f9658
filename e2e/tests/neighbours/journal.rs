//! What programs that take turns wrote down, and what is to be said of it.

use std::collections::BTreeSet;

/// The sum of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Turns that began: ours, theirs.
    pub(crate) turns: [usize; 2],
    /// Programs that were killed inside: ours, theirs.
    pub(crate) killed: [usize; 2],
    /// Turns of ours that ended because the hold was not to be believed in any more.
    pub(crate) doubted: usize,
    /// Somebody came in while another was inside who had not been killed, and no fail-over was to blame that may lose what was acknowledged.
    pub(crate) overlaps: usize,
    /// As those, during such a fail-over or within a lease after it.
    pub(crate) excused: usize,
    /// As those, while the machine did not let the other run for longer than its lease lasts.
    pub(crate) slept: usize,
    /// Tokens that did not grow: within such a fail-over, that were given twice.
    pub(crate) tokens: usize,
}

/// Somebody inside.
struct Holder<'a> {
    program: &'a str,
    /// How many came in meanwhile, and how many of them with a fail-over to blame.
    overlaps_with: [usize; 2],
    lossy: bool,
}

/// Judges lines: `enter WHO TOKEN`, with `-` where there is none; `leave WHO held|lost|slept`; `killed WHO`; `lossy begins` and
/// `lossy ends` around a fail-over that may lose something.
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
            _ => panic!("it makes no sense here: {line}"),
        }
    }
    tally
}

/// Who is inside and did not leave.
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
    let fair = "enter ours-0 5\nleave ours-0 held\nenter theirs-0 -\nkilled theirs-0\nenter ours-1 7\nleave ours-1 held\n";
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
