//! The jobs: `mmapit`, `bonnie`, `streams`, `random`, `patterns`.

use crate::job::{Job, Part, Variant, Work};
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Pattern, Stream};

/// Bonnie's buffer of a block, and of stdio behind `getc` and `putc` on the systems of its time: 8 KiB (Bray's Bonnie, `Chunk`).
const BONNIE_BYTES: u64 = 8 << 10;
/// A block and its stride in the pattern of that name: 16 of each 64 KiB, as in the research on what kernels leave out.
const STRIDE_PAGES: u64 = 16;
/// Readers in turn through one opening.
const INTERLEAVED: u64 = 4;
/// Files of a scan, each opened, read and closed: what `grep -r` does.
const SCAN_FILES: u64 = 64;

/// What the jobs are made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Length of each file, bytes, rounded down to whole blocks.
    pub file_bytes: u64,
    /// What a call reads, bytes.
    pub block_bytes: u64,
    /// Numbers of readers.
    pub streams: Vec<u64>,
    /// Accesses of a random job.
    pub count: u64,
    /// Where chance begins.
    pub seed: u64,
}

impl Sizes {
    fn block_pages(&self) -> u64 {
        self.block_bytes.div_ceil(PAGE_BYTES).max(1)
    }

    fn stream(&self, pattern: Pattern) -> Stream {
        let block_pages = self.block_pages();
        let file_pages = (self.file_bytes / PAGE_BYTES / block_pages).max(1) * block_pages;
        Stream {
            pattern,
            call_bytes: self.block_bytes.max(1),
            stride_pages: STRIDE_PAGES.max(2 * block_pages),
            readers: INTERLEAVED,
            seed: self.seed,
            ..Stream::reader(file_pages, block_pages)
        }
    }
}

/// What a job is called, and what it does.
pub const NAMES: [(&str, &str); 5] = [
    ("mmapit", "map a large file and copy each page (O'Connor and Tracy 2000)"),
    ("bonnie", "write, rewrite and read by characters and by blocks (Roudier 1996)"),
    ("streams", "N readers, each of a file of its own (Wu 2010)"),
    ("random", "blocks here and there, by calls and through a mapping"),
    ("patterns", "backward, stride, interleaved, and a scan that opens and closes"),
];

/// The job of this name.
pub fn named(name: &str, sizes: &Sizes) -> Option<Job> {
    let (name, _) = *NAMES.iter().find(|(known, _)| *known == name)?;
    let variants = match name {
        "mmapit" => mmapit(sizes),
        "bonnie" => bonnie(sizes),
        "streams" => streams(sizes),
        "random" => random(sizes),
        _ => patterns(sizes),
    };
    Some(Job { name, variants })
}

/// Touches every page of a file from front to back, and copies it into an empty bucket.
fn mmapit(sizes: &Sizes) -> Vec<Variant> {
    let pages = Sizes { block_bytes: PAGE_BYTES, ..sizes.clone() };
    let stream = Stream { mapped: true, ..pages.stream(Pattern::Sequential) };
    vec![Variant { timeline: true, ..Variant::of_one("mmapit", stream) }]
}

/// The five rows that Roudier's table has (his seeks are `random`).
fn bonnie(sizes: &Sizes) -> Vec<Variant> {
    let sizes = Sizes { block_bytes: BONNIE_BYTES, ..sizes.clone() };
    let row = |name: &str, pattern: Pattern, work: Work| {
        let stream = Stream { syncs: pattern.writes(), ..sizes.stream(pattern) };
        let readers = vec![vec![Part { file: 0, stream, work }]];
        Variant { name: name.into(), readers, timeline: false }
    };
    vec![
        row("output per char", Pattern::Write, Work::Chars),
        row("output block", Pattern::Write, Work::None),
        row("rewrite", Pattern::Rewrite, Work::None),
        row("input per char", Pattern::Sequential, Work::Chars),
        row("input block", Pattern::Sequential, Work::None),
    ]
}

/// Sequential readers, each with a file of its own.
fn streams(sizes: &Sizes) -> Vec<Variant> {
    let variant = |count: u64| {
        let part = |number| Part { file: number as usize, stream: sizes.stream(Pattern::Sequential), work: Work::None };
        let readers = (0..count).map(|number| vec![part(number)]).collect();
        let name = if count == 1 { "1 stream".into() } else { format!("{count} streams") };
        Variant { name, readers, timeline: false }
    };
    sizes.streams.iter().map(|count| variant(*count)).collect()
}

/// Single blocks in no order.
fn random(sizes: &Sizes) -> Vec<Variant> {
    let stream = Stream { most_blocks: sizes.count, ..sizes.stream(Pattern::Random) };
    // As many blocks as wanted, however few the file has.
    let blocks = (stream.file_pages / stream.block_pages).max(1);
    let stream = Stream { passes: sizes.count.div_ceil(blocks), ..stream };
    vec![Variant::of_one("pread", stream), Variant::of_one("mmap", Stream { mapped: true, ..stream })]
}

fn patterns(sizes: &Sizes) -> Vec<Variant> {
    let one = |name: &str, pattern| Variant::of_one(name, sizes.stream(pattern));
    let small = Sizes { file_bytes: sizes.file_bytes / SCAN_FILES, ..sizes.clone() };
    // The first file is the large one of the others.
    let part =
        |number: u64| Part { file: number as usize + 1, stream: small.stream(Pattern::Sequential), work: Work::None };
    let scan =
        Variant { name: "open/close scan".into(), readers: vec![(0..SCAN_FILES).map(part).collect()], timeline: false };
    vec![
        one("backward", Pattern::Backward),
        one("stride", Pattern::Stride),
        one("interleaved", Pattern::Interleaved),
        one("interleaved backward", Pattern::InterleavedBackward),
        scan,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> Sizes {
        Sizes { file_bytes: 8 << 20, block_bytes: 16 << 10, streams: vec![1, 3], count: 100, seed: 0 }
    }

    #[test]
    fn every_job_has_rows_and_files_for_them() {
        for (name, _) in NAMES {
            let job = named(name, &sizes()).unwrap();
            assert!(!job.variants.is_empty());
            let bytes: u64 = job.file_sizes().iter().sum();
            assert!(job.variants.iter().all(|variant| variant.used_bytes() <= bytes), "{name}");
        }
        assert_eq!(named("nothing", &sizes()), None);
    }

    #[test]
    fn readers_have_files_of_their_own() {
        let job = named("streams", &sizes()).unwrap();
        assert_eq!(job.file_sizes(), [8 << 20; 3]);
        assert_eq!(job.variants[1].used_bytes(), 3 * (8 << 20));
    }

    #[test]
    fn a_small_file_is_read_at_random_as_often_as_wanted() {
        let sizes = Sizes { file_bytes: 64 << 10, count: 7, ..sizes() };
        let job = named("random", &sizes).unwrap();
        let reads = |variant: &Variant| {
            let ops = variant.parts().flat_map(|part| part.stream.ops());
            ops.filter(|op| matches!(op, ahead_sim::Op::Read { .. } | ahead_sim::Op::Touch { .. })).count()
        };
        assert!(job.variants.iter().all(|variant| reads(variant) >= 7));
    }

    #[test]
    fn bonnie_writes_before_it_reads() {
        let job = named("bonnie", &sizes()).unwrap();
        let writes: Vec<bool> =
            job.variants.iter().map(|variant| variant.readers[0][0].stream.pattern.writes()).collect();
        assert_eq!(writes, [true, true, true, false, false]);
        assert_eq!(job.variants[0].used_bytes(), 0);
    }
}
