//! The ways in which programs go through files.

use crate::workload::{Op, Ops};
use ahead_policy::{FileId, OpenId, PAGE_BYTES};

/// A way through a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// From front to back.
    Sequential,
    /// From back to front, each block forwards.
    Backward,
    /// A block, a gap, a block.
    Stride,
    /// Several readers, each with a part of the file of its own, in turn through one opening.
    Interleaved,
    /// Blocks in no order, each once or more.
    Random,
    /// Ascending, but most blocks are left out.
    Sparse,
    /// Nine blocks in a row, then one somewhere.
    Mixed,
    /// Writes a new file from front to back; a further pass writes over it.
    Write,
    /// Reads a block, works on it, goes back, writes it; from front to back (Bonnie's rewrite).
    Rewrite,
}

impl Pattern {
    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Pattern::Write | Pattern::Rewrite)
    }
}

/// What one stream does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// The way.
    pub pattern: Pattern,
    /// Its number of opening and file.
    pub id: u32,
    /// Length of the file, pages.
    pub file_pages: u64,
    /// A block, pages.
    pub block_pages: u64,
    /// What one call reads of a block, bytes; the last one of a block may be shorter. A mapping is touched page by page.
    pub call_bytes: u64,
    /// From one block's beginning to the next one's, pages; for [`Pattern::Stride`].
    pub stride_pages: u64,
    /// Readers of [`Pattern::Interleaved`].
    pub readers: u64,
    /// How often.
    pub passes: u64,
    /// Through a mapping instead of by calls.
    pub mapped: bool,
    /// The program's work on each page, nanoseconds.
    pub user_per_page_ns: f64,
    /// The program's work after each block, nanoseconds.
    pub compute_ns: u64,
    /// It sleeps so long after each block, nanoseconds.
    pub sleep_ns: u64,
    /// It opens and closes the file in each pass.
    pub reopens: bool,
    /// At the end of each pass it waits until what it wrote is on the disk.
    pub syncs: bool,
    /// Where chance begins.
    pub seed: u64,
}

/// Numbers that look random and are the same each time (SplitMix64: Steele, Lea and Flood 2014).
#[derive(Clone, Copy, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Begins here.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }
}

impl Stream {
    fn blocks(&self) -> u64 {
        self.file_pages / self.block_pages
    }

    /// The first page of the `index`th block of a pass.
    fn block(&self, index: u64, chance: &mut Chance) -> Option<u64> {
        let blocks = self.blocks();
        let page = |block: u64| (block < blocks).then_some(block * self.block_pages);
        match self.pattern {
            Pattern::Sequential | Pattern::Write | Pattern::Rewrite => page(index),
            Pattern::Backward => blocks.checked_sub(index + 1).and_then(page),
            Pattern::Stride => {
                let first = index.checked_mul(self.stride_pages)?;
                (first + self.block_pages <= self.file_pages).then_some(first)
            }
            Pattern::Interleaved => {
                let each = blocks / self.readers;
                let (reader, block) = (index % self.readers, index / self.readers);
                if block < each { page(reader * each + block) } else { None }
            }
            Pattern::Random => (index < blocks).then(|| chance.below(blocks) * self.block_pages),
            Pattern::Sparse => {
                // One in four, more or less.
                let block = 4 * index + chance.below(4);
                page(block)
            }
            Pattern::Mixed if index % 10 == 9 && index < blocks => page(chance.below(blocks)),
            Pattern::Mixed => page(index - index / 10),
        }
    }

    /// Its operations.
    pub fn ops(self) -> Ops {
        let (open, file) = (OpenId(self.id), FileId(self.id));
        let passes = (0..self.passes).flat_map(move |pass| {
            let mut chance =
                Chance::new(self.seed ^ pass.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ u64::from(self.id) << 32);
            let begins = pass == 0 || self.reopens;
            let ends = pass + 1 == self.passes || self.reopens;
            let blocks =
                (0..).map_while(move |index| self.block(index, &mut chance)).flat_map(move |first| self.at(first));
            let open_it = begins.then_some(Op::Open { open, file });
            let sync = self.syncs.then_some(Op::Sync { file });
            open_it.into_iter().chain(blocks).chain(sync).chain(ends.then_some(Op::Close { open }))
        });
        Box::new(passes)
    }

    fn at(&self, first: u64) -> impl Iterator<Item = Op> + use<> {
        let (open, file) = (OpenId(self.id), FileId(self.id));
        let (begin, end) = (first * PAGE_BYTES, (first + self.block_pages) * PAGE_BYTES);
        let (pattern, mapped, pages) = (self.pattern, self.mapped, self.block_pages);
        let call_bytes = if mapped { end - begin } else { self.call_bytes };
        let calls = (begin..end).step_by(call_bytes.try_into().unwrap_or(usize::MAX));
        // The work on what is made comes before it is written; on what is read, the process does it as it goes.
        let work_ns = self.user_per_page_ns / PAGE_BYTES as f64;
        let accesses = calls.flat_map(move |offset_bytes| {
            let length_bytes = call_bytes.min(end - offset_bytes);
            let read = Op::Read { open, file, offset_bytes, length_bytes };
            let write = Op::Write { open, file, offset_bytes, length_bytes };
            let make = Op::Compute { time_ns: (work_ns * length_bytes as f64) as u64 };
            let list = match pattern {
                Pattern::Write => [Some(make), Some(write), None],
                Pattern::Rewrite => [Some(read), Some(Op::Seek { open, file, offset_bytes }), Some(write)],
                _ if mapped => [Some(Op::Touch { open, file, first, pages }), None, None],
                _ => [Some(read), None, None],
            };
            list.into_iter().flatten()
        });
        let compute = (self.compute_ns > 0).then_some(Op::Compute { time_ns: self.compute_ns });
        let sleep = (self.sleep_ns > 0).then_some(Op::Sleep { time_ns: self.sleep_ns });
        accesses.chain(compute).chain(sleep)
    }
}
