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
    /// The same, each reader from back to front.
    InterleavedBackward,
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
    /// Readers of [`Pattern::Interleaved`] and [`Pattern::InterleavedBackward`].
    pub readers: u64,
    /// It ends after so many blocks of a pass, if there are more.
    pub most_blocks: u64,
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
            Pattern::InterleavedBackward => {
                let each = blocks / self.readers;
                let (reader, block) = (index % self.readers, index / self.readers);
                if block < each { page((reader + 1) * each - block - 1) } else { None }
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

    /// How many steps it takes at most: accesses to pages, calls, slices of computing.
    pub fn steps(&self, slice_ns: u64) -> u64 {
        let per_block =
            (self.block_pages * PAGE_BYTES / self.call_bytes).max(self.block_pages) + self.compute_ns / slice_ns + 2;
        let writes_too = 1 + u64::from(self.pattern == Pattern::Rewrite);
        self.blocks().saturating_mul(per_block).saturating_mul(self.passes).saturating_mul(writes_too)
    }

    /// Its operations.
    pub fn ops(self) -> Ops {
        let (open, file) = (OpenId(self.id), FileId(self.id));
        let passes = (0..self.passes).flat_map(move |pass| {
            let mut chance =
                Chance::new(self.seed ^ pass.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ u64::from(self.id) << 32);
            let begins = pass == 0 || self.reopens;
            let ends = pass + 1 == self.passes || self.reopens;
            let blocks = (0..self.most_blocks)
                .map_while(move |index| self.block(index, &mut chance))
                .flat_map(move |first| self.at(first));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn places(pattern: Pattern, most_blocks: u64) -> Vec<u64> {
        let stream = Stream {
            pattern,
            id: 0,
            file_pages: 24,
            block_pages: 4,
            call_bytes: 4 * ahead_policy::PAGE_BYTES,
            stride_pages: 8,
            readers: 2,
            most_blocks,
            passes: 1,
            mapped: true,
            user_per_page_ns: 0.0,
            compute_ns: 0,
            sleep_ns: 0,
            reopens: false,
            syncs: false,
            seed: 0,
        };
        let place = |op| if let Op::Touch { first, .. } = op { Some(first) } else { None };
        stream.ops().filter_map(place).collect()
    }

    #[test]
    fn interleaved_readers_go_through_their_parts_in_turn() {
        assert_eq!(places(Pattern::Interleaved, u64::MAX), [0, 12, 4, 16, 8, 20]);
        assert_eq!(places(Pattern::InterleavedBackward, u64::MAX), [8, 20, 4, 16, 0, 12]);
    }

    #[test]
    fn a_pass_ends_after_so_many_blocks() {
        assert_eq!(places(Pattern::Backward, 2), [20, 16]);
        assert_eq!(places(Pattern::Random, 3).len(), 3);
    }
}
