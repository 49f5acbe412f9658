//! The commands that readers copy from the pages: each runs as its page has it, beside programs that stand for those of
//! the reader. Only absolute paths, and times that a test cannot wait for, are replaced.

mod first;
mod jobs;
mod page;
mod site;
mod steps;
