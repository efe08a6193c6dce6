//! The access patterns of programs.

use crate::workload::{Mapped, Op, Ops};
pub use ahead_model::random::SplitMix64 as Chance;
use ahead_policy::{Advice, FileId, OpenId, PAGE_BYTES};

/// An access pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// From front to back.
    Sequential,
    /// From back to front, each block from its first page on.
    Backward,
    /// A block, a gap, a block.
    Stride,
    /// Several readers of separate parts of the file, in turn through one opening.
    Interleaved,
    /// The same with each reader from back to front.
    InterleavedBackward,
    /// Blocks at random. A block can occur more than once.
    Random,
    /// Ascending, with most blocks left out.
    Sparse,
    /// Nine blocks in a row, then one at a random place.
    Mixed,
    /// Writes a new file from front to back. A further pass overwrites the file.
    Write,
    /// Reads a block, processes the data, goes back and writes the block; from front to back (Bonnie's rewrite).
    Rewrite,
}

impl Pattern {
    /// Whether the pattern writes.
    pub fn writes(self) -> bool {
        matches!(self, Pattern::Write | Pattern::Rewrite)
    }
}

/// The work of one stream. Lengths and numbers of 0 count as 1: a stream with steps of length 0 would never end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// The access pattern.
    pub pattern: Pattern,
    /// The number of the stream's opening and file.
    pub id: u32,
    /// Length of the file, pages.
    pub file_pages: u64,
    /// Length of a block, pages; the last block of the file may be shorter.
    pub block_pages: u64,
    /// Length of a call within a block, bytes; the last call of a block may be shorter. A mapping is touched page by
    /// page.
    pub call_bytes: u64,
    /// From the start of one block to the start of the next, pages; for [`Pattern::Stride`].
    pub stride_pages: u64,
    /// Readers of [`Pattern::Interleaved`] and [`Pattern::InterleavedBackward`].
    pub readers: u64,
    /// The limit on blocks in a pass.
    pub most_blocks: u64,
    /// The number of passes.
    pub passes: u64,
    /// Whether the stream uses a mapping instead of calls.
    pub mapped: bool,
    /// Advice: for the file (`posix_fadvise`) after each open, or for the mapping.
    pub advice: Advice,
    /// Whether the mapping requests huge pages (`MADV_HUGEPAGE`).
    pub huge: bool,
    /// Whether the mapping contains a program (`VM_EXEC`).
    pub executable: bool,
    /// The program's work on each page, nanoseconds.
    pub user_per_page_ns: f64,
    /// The program's work after each block, nanoseconds.
    pub compute_ns: u64,
    /// The program's sleep after each block, nanoseconds.
    pub sleep_ns: u64,
    /// Whether the stream opens and closes the file in each pass.
    pub reopens: bool,
    /// Whether the stream waits at the end of each pass until its writes are on the disk.
    pub syncs: bool,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Stream {
    /// A plain reader: one pass from front to back, one call for each block, and no work on the data.
    pub fn reader(file_pages: u64, block_pages: u64) -> Stream {
        Stream {
            pattern: Pattern::Sequential,
            id: 0,
            file_pages,
            block_pages,
            call_bytes: block_pages * PAGE_BYTES,
            stride_pages: 1,
            readers: 1,
            most_blocks: u64::MAX,
            passes: 1,
            mapped: false,
            advice: Advice::Normal,
            huge: false,
            executable: false,
            user_per_page_ns: 0.0,
            compute_ns: 0,
            sleep_ns: 0,
            reopens: false,
            syncs: false,
            seed: 0,
        }
    }

    fn blocks(&self) -> u64 {
        self.file_pages.div_ceil(self.block_pages)
    }

    /// The first block of the `reader`th part of the file. The lengths of the parts differ by at most one block.
    fn part(&self, reader: u64) -> u64 {
        let blocks = self.blocks();
        reader * (blocks / self.readers) + reader.min(blocks % self.readers)
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
                (first < self.file_pages).then_some(first)
            }
            // The readers with longer parts come first: in every round each of these readers has a block left.
            Pattern::Interleaved if index < blocks => page(self.part(index % self.readers) + index / self.readers),
            Pattern::InterleavedBackward if index < blocks => {
                page(self.part(index % self.readers + 1) - index / self.readers - 1)
            }
            Pattern::Interleaved | Pattern::InterleavedBackward => None,
            Pattern::Random => (index < blocks).then(|| chance.below(blocks) * self.block_pages),
            Pattern::Sparse => {
                // One block in four on average.
                let block = 4 * index + chance.below(4);
                page(block)
            }
            Pattern::Mixed if index % 10 == 9 && index < blocks => page(chance.below(blocks)),
            Pattern::Mixed => page(index - index / 10),
        }
    }

    /// The limit on steps: accesses to pages, calls, slices of computing.
    pub fn steps(&self, slice_ns: u64) -> u64 {
        let Stream { block_pages, call_bytes, .. } = self.at_least_one();
        let per_block =
            (block_pages * PAGE_BYTES / call_bytes).max(block_pages) + self.compute_ns / slice_ns.max(1) + 2;
        let writes_too = 1 + u64::from(self.pattern == Pattern::Rewrite);
        self.at_least_one()
            .blocks()
            .min(self.most_blocks)
            .saturating_mul(per_block)
            .saturating_mul(self.passes)
            .saturating_mul(writes_too)
    }

    /// The limit on jumps to a place that does not follow the previous one.
    pub fn jumps(&self) -> u64 {
        match self.pattern {
            Pattern::Random | Pattern::Sparse | Pattern::Mixed => {
                self.at_least_one().blocks().min(self.most_blocks).saturating_mul(self.passes)
            }
            _ => 0,
        }
    }

    /// The operations of the stream.
    pub fn ops(self) -> Ops {
        let (stream, chance) = (self.at_least_one(), self.chance(0));
        Box::new(StreamOps { stream, pass: 0, index: 0, chance, next: Next::Begin })
    }

    fn at_least_one(self) -> Stream {
        Stream {
            block_pages: self.block_pages.max(1),
            call_bytes: self.call_bytes.max(1),
            stride_pages: self.stride_pages.max(1),
            readers: self.readers.max(1),
            ..self
        }
    }

    fn chance(&self, pass: u64) -> Chance {
        Chance::new(self.seed ^ pass.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ u64::from(self.id) << 32)
    }
}

/// The next operation of a stream.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The start of a pass.
    Begin,
    Advise,
    Block,
    /// In the block up to `end`: the call at `at`, of which `done` operations are executed.
    Call {
        at: u64,
        end: u64,
        done: u8,
    },
    Compute,
    Sleep,
    Sync,
    Close,
}

/// The operations of a stream, in order.
#[derive(Clone, Debug)]
struct StreamOps {
    stream: Stream,
    pass: u64,
    /// Blocks of the pass that were started.
    index: u64,
    chance: Chance,
    next: Next,
}

impl StreamOps {
    /// One operation of a call. After its last operation the next call follows. The work on written data comes before
    /// the write. The process does the work on read data during the read.
    fn call(&mut self, at: u64, end: u64, done: u8) -> Op {
        let stream = &self.stream;
        let (open, file, offset_bytes) = (OpenId(stream.id), FileId(stream.id), at);
        let length_bytes = if stream.mapped { end - at } else { stream.call_bytes.min(end - at) };
        let write = Op::Write { open, file, offset_bytes, length_bytes };
        let read = Op::Read { open, file, offset_bytes, length_bytes };
        let (op, is_last) = match (stream.pattern, done) {
            (Pattern::Write, 0) => {
                let time_ns = (stream.user_per_page_ns * length_bytes as f64 / PAGE_BYTES as f64) as u64;
                (Op::Compute { time_ns }, false)
            }
            (Pattern::Rewrite, 0) => (read, false),
            (Pattern::Rewrite, 1) => (Op::Seek { open, file, offset_bytes }, false),
            (Pattern::Write | Pattern::Rewrite, _) => (write, true),
            _ if stream.mapped => {
                let Stream { advice, huge, executable, .. } = *stream;
                let (first, pages) = (at / PAGE_BYTES, length_bytes / PAGE_BYTES);
                (Op::Touch { open, file, first, pages, mapped: Mapped { advice, huge, executable } }, true)
            }
            _ => (read, true),
        };
        self.next = match is_last {
            true => Next::Call { at: at + length_bytes, end, done: 0 },
            false => Next::Call { at, end, done: done + 1 },
        };
        op
    }
}

impl Iterator for StreamOps {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let (open, file) = (OpenId(self.stream.id), FileId(self.stream.id));
        loop {
            match self.next {
                Next::Call { at, end, done } if at < end => return Some(self.call(at, end, done)),
                Next::Begin if self.pass == self.stream.passes => return None,
                Next::Begin => {
                    (self.index, self.chance, self.next) = (0, self.stream.chance(self.pass), Next::Block);
                    if self.pass == 0 || self.stream.reopens {
                        self.next = Next::Advise;
                        return Some(Op::Open { open, file });
                    }
                }
                Next::Advise => {
                    self.next = Next::Block;
                    let advice = self.stream.advice;
                    if advice != Advice::Normal && !self.stream.mapped {
                        return Some(Op::Advise { open, file, advice });
                    }
                }
                Next::Block if self.index == self.stream.most_blocks => self.next = Next::Sync,
                Next::Block => match self.stream.block(self.index, &mut self.chance) {
                    Some(first) => {
                        self.index += 1;
                        let end = (first + self.stream.block_pages).min(self.stream.file_pages);
                        let (at, end) = (first * PAGE_BYTES, end * PAGE_BYTES);
                        self.next = Next::Call { at, end, done: 0 };
                    }
                    None => self.next = Next::Sync,
                },
                Next::Call { .. } => self.next = Next::Compute,
                Next::Compute => {
                    self.next = Next::Sleep;
                    if self.stream.compute_ns > 0 {
                        return Some(Op::Compute { time_ns: self.stream.compute_ns });
                    }
                }
                Next::Sleep => {
                    self.next = Next::Block;
                    if self.stream.sleep_ns > 0 {
                        return Some(Op::Sleep { time_ns: self.stream.sleep_ns });
                    }
                }
                Next::Sync => {
                    self.next = Next::Close;
                    if self.stream.syncs {
                        return Some(Op::Sync { file });
                    }
                }
                Next::Close => {
                    self.pass += 1;
                    self.next = Next::Begin;
                    if self.pass == self.stream.passes || self.stream.reopens {
                        return Some(Op::Close { open });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pattern: Pattern) -> Stream {
        Stream { pattern, stride_pages: 8, readers: 2, mapped: true, ..Stream::reader(24, 4) }
    }

    fn places_of(stream: Stream) -> Vec<u64> {
        let place = |op| if let Op::Touch { first, .. } = op { Some(first) } else { None };
        stream.ops().filter_map(place).collect()
    }

    fn places(pattern: Pattern, most_blocks: u64) -> Vec<u64> {
        places_of(Stream { most_blocks, ..stream(pattern) })
    }

    #[test]
    fn each_pattern_visits_its_places() {
        assert_eq!(places(Pattern::Sequential, u64::MAX), [0, 4, 8, 12, 16, 20]);
        assert_eq!(places(Pattern::Backward, u64::MAX), [20, 16, 12, 8, 4, 0]);
        assert_eq!(places(Pattern::Stride, u64::MAX), [0, 8, 16]);
        let long = |pattern| places_of(Stream { file_pages: 4000, ..stream(pattern) });
        let (sparse, mixed, random) = (long(Pattern::Sparse), long(Pattern::Mixed), long(Pattern::Random));
        // One block in each four, always ascending.
        assert_eq!(sparse.len(), 250);
        assert!(sparse.iter().enumerate().all(|(at, page)| page / 16 == at as u64) && sparse.is_sorted());
        assert!(sparse.windows(2).any(|two| two[1] - two[0] != 16), "random");
        // Nine tenths follow the previous block, one tenth is at a random place.
        let follow = mixed.windows(2).filter(|two| two[1] == two[0] + 4).count();
        assert!((790..=900).contains(&(follow * 1000 / mixed.len())), "{follow} of {}", mixed.len());
        assert!(random.len() == 1000 && random.iter().all(|page| page % 4 == 0 && *page < 4000));
        let follow = random.windows(2).filter(|two| two[1] == two[0] + 4).count();
        assert!(follow < 10, "{follow}");
    }

    #[test]
    fn passes_open_and_close_the_file_once_or_each_time() {
        let opens = |reopens: bool| {
            let ops = Stream { passes: 3, reopens, ..stream(Pattern::Sequential) }.ops();
            ops.fold((0, 0, 0), |(opens, closes, others), op| match op {
                Op::Open { .. } => (opens + 1, closes, others),
                Op::Close { .. } => (opens, closes + 1, others),
                _ => (opens, closes, others + 1),
            })
        };
        assert_eq!((opens(false), opens(true)), ((1, 1, 18), (3, 3, 18)));
    }

    #[test]
    fn writing_patterns_write_call_by_call() {
        let (open, file) = (OpenId(0), FileId(0));
        let write = |offset_bytes, length_bytes| Op::Write { open, file, offset_bytes, length_bytes };
        let base = Stream { mapped: false, file_pages: 4, call_bytes: 10_000, ..stream(Pattern::Write) };
        let writes: Vec<Op> = Stream { user_per_page_ns: 4096.0, syncs: true, ..base }.ops().collect();
        let compute = |time_ns| Op::Compute { time_ns };
        let expected = [
            Op::Open { open, file },
            compute(10_000),
            write(0, 10_000),
            compute(6384),
            write(10_000, 6384),
            Op::Sync { file },
            Op::Close { open },
        ];
        assert_eq!(writes, expected);
        let rewrite: Vec<Op> =
            Stream { pattern: Pattern::Rewrite, call_bytes: 16_384, compute_ns: 5, ..base }.ops().collect();
        let read = Op::Read { open, file, offset_bytes: 0, length_bytes: 16_384 };
        let back = Op::Seek { open, file, offset_bytes: 0 };
        assert_eq!(rewrite[1..5], [read, back, write(0, 16_384), compute(5)]);
    }

    #[test]
    fn advice_is_given_with_each_opening_and_goes_with_each_touch() {
        let (open, file, advice) = (OpenId(0), FileId(0), Advice::Random);
        let advised = Stream { passes: 2, advice, reopens: true, ..stream(Pattern::Sequential) };
        let advises = |stream: Stream| stream.ops().filter(|op| *op == Op::Advise { open, file, advice }).count();
        assert_eq!(advises(Stream { mapped: false, ..advised }), 2);
        assert_eq!(advises(Stream { mapped: false, reopens: false, ..advised }), 1);
        assert_eq!(advises(advised), 0);
        let said = |op: &Op| matches!(op, Op::Touch { mapped: Mapped { advice: Advice::Random, .. }, .. });
        assert_eq!(advised.ops().filter(said).count(), 12);
    }

    /// Regression: zero blocks, zero readers and calls without bytes caused divisions by zero or endless loops.
    #[test]
    fn zero_lengths_count_as_one() {
        for pattern in [Pattern::Sequential, Pattern::Stride, Pattern::Interleaved, Pattern::Rewrite] {
            let none = Stream { pattern, stride_pages: 0, readers: 0, ..Stream::reader(3, 0) };
            assert!(none.ops().count() > 3 && none.steps(0) > 3, "{pattern:?}");
        }
    }

    #[test]
    fn interleaved_readers_go_through_their_parts_in_turn() {
        assert_eq!(places(Pattern::Interleaved, u64::MAX), [0, 12, 4, 16, 8, 20]);
        assert_eq!(places(Pattern::InterleavedBackward, u64::MAX), [8, 20, 4, 16, 0, 12]);
    }

    /// For every block length: the patterns read each page once, including those behind the last whole block, and all
    /// readers get whole parts.
    #[test]
    fn file_is_read_to_its_end_with_a_partial_last_block() {
        for pattern in [Pattern::Sequential, Pattern::Backward, Pattern::Interleaved, Pattern::InterleavedBackward] {
            for (file_pages, block_pages, readers) in [(256, 192, 1), (256, 25, 3), (24, 5, 2), (24, 24, 1), (7, 2, 4)]
            {
                let touched = |op| if let Op::Touch { first, pages, .. } = op { first..first + pages } else { 0..0 };
                let stream = Stream { file_pages, block_pages, readers, ..stream(pattern) };
                let mut pages: Vec<u64> = stream.ops().flat_map(touched).collect();
                pages.sort_unstable();
                assert!(pages.iter().copied().eq(0..file_pages), "{stream:?}: {pages:?}");
            }
        }
        let short = Stream { file_pages: 22, mapped: false, ..stream(Pattern::Stride) };
        let last = short.ops().filter_map(|op| match op {
            Op::Read { offset_bytes, length_bytes, .. } => Some((offset_bytes / PAGE_BYTES, length_bytes / PAGE_BYTES)),
            _ => None,
        });
        assert_eq!(last.last(), Some((16, 4)));
        assert_eq!(places_of(Stream { file_pages: 18, ..stream(Pattern::Stride) }), [0, 8, 16]);
    }

    #[test]
    fn a_pass_ends_after_most_blocks() {
        assert_eq!(places(Pattern::Backward, 2), [20, 16]);
        assert_eq!(places(Pattern::Random, 3).len(), 3);
    }
}
