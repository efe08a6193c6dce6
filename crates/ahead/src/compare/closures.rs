//! Comparing pieces of the calling program.

use super::{Runner, Sample};
use crate::Result;
use ahead_sys::usage;
use std::fmt;
use std::time::Instant;

type ClosureWork<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// Ways of doing something, as functions of the calling program. A variant is an index, in the order of [`Closures::add`].
///
/// Times are those of the functions alone. Reads are those of this process that reached a device (`getrusage`, 512-byte blocks; requests are
/// not counted).
#[derive(Default)]
pub struct Closures<'a> {
    ways: Vec<(String, ClosureWork<'a>, ClosureWork<'a>)>,
}

impl fmt::Debug for Closures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ways.iter().map(|(name, ..)| name)).finish()
    }
}

impl<'a> Closures<'a> {
    /// None yet.
    pub fn new() -> Closures<'a> {
        Closures::default()
    }

    /// Adds a way, and what has to be done before each of its runs (its time does not count).
    pub fn add(
        mut self,
        name: &str,
        prepare: impl FnMut() -> Result<()> + 'a,
        work: impl FnMut() -> Result<()> + 'a,
    ) -> Closures<'a> {
        self.ways.push((name.into(), Box::new(prepare), Box::new(work)));
        self
    }

    /// The variants.
    pub fn variants(&self) -> Vec<usize> {
        (0..self.ways.len()).collect()
    }

    /// The name of a variant.
    pub fn name(&self, variant: usize) -> &str {
        &self.ways[variant].0
    }
}

impl Runner for Closures<'_> {
    type Variant = usize;

    fn run(&mut self, variant: &usize) -> Result<Sample> {
        let (_, prepare, work) = &mut self.ways[*variant];
        prepare()?;
        let (before, began) = (usage::own_read_bytes(), Instant::now());
        work()?;
        let s = began.elapsed().as_secs_f64();
        Ok(Sample { s, bytes: usage::own_read_bytes() - before, ..Sample::default() })
    }
}
