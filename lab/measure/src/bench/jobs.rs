//! The jobs: `mmapit`, `bonnie`, `streams`, `random`, `patterns`.

use crate::bench::job::{Job, Part, Variant, Work};
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Pattern, Stream};

/// Bonnie's block size, and the stdio buffer of `getc` and `putc` on the systems of its time: 8 KiB (Bray's Bonnie, `Chunk`).
const BONNIE_BYTES: u64 = 8 * KIB;
/// Distance of blocks in the job `stride`: 16 KiB of each 64 KiB, a pattern that kernels do not detect.
const STRIDE_PAGES: u64 = 16;
/// Readers that take turns on one open file.
const INTERLEAVED: u64 = 4;
/// Files of a scan, each opened, read and closed, as by `grep -r`.
const SCAN_FILES: u64 = 64;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Numbers of readers in Wu's table.
const STREAMS: [u64; 5] = [1, 2, 4, 8, 16];
/// Random accesses: about 16 s on a disk with an access time of 8 ms.
const ACCESSES: u64 = 2000;

/// Parameters of the jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Length of each file, bytes, rounded down to whole blocks.
    pub file_bytes: u64,
    /// Bytes of a call.
    pub block_bytes: u64,
    /// Numbers of readers.
    pub streams: Vec<u64>,
    /// Accesses of a random job.
    pub count: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Sizes {
    /// The default parameters of a job. O'Connor and Tracy's file had 100 MB, Roudier's 200; Wu's readers read blocks of 32 KiB. The other
    /// sizes are our choice.
    pub fn default_of(job: &str) -> Sizes {
        let (file_bytes, block_bytes) = match job {
            "mmapit" => (100 * MIB, PAGE_BYTES),
            "bonnie" => (200 * MIB, BONNIE_BYTES),
            "streams" => (128 * MIB, 32 * KIB),
            "random" => (512 * MIB, PAGE_BYTES),
            _ => (128 * MIB, 16 * KIB),
        };
        Sizes { file_bytes, block_bytes, streams: STREAMS.to_vec(), count: ACCESSES, seed: 1 }
    }

    /// Checks the sizes for a job. Without the check, the job would have other blocks or longer files than the given ones.
    ///
    /// Errors: the blocks of the job have to be whole pages; a file is shorter than a block.
    pub fn check(&self, job: &str) -> Result<(), String> {
        let Sizes { file_bytes, block_bytes, .. } = *self;
        if !block_bytes.is_multiple_of(PAGE_BYTES) && job != "streams" {
            return Err(format!("blocks of {job} are whole pages: --block has to be a multiple of 4K"));
        }
        if file_bytes < block_bytes && job == "bonnie" {
            return Err(format!("bonnie's calls have {block_bytes} bytes: a file of {file_bytes} (--size) is shorter"));
        }
        match file_bytes < block_bytes {
            true => {
                Err(format!("a call of {block_bytes} bytes (--block) is longer than a file of {file_bytes} (--size)"))
            }
            false => Ok(()),
        }
    }

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

/// Names of the jobs, with one line for help.
pub const NAMES: [(&str, &str); 5] = [
    ("mmapit", "map a large file and copy each page (O'Connor and Tracy 2000)"),
    ("bonnie", "write, rewrite and read by characters and by blocks (Roudier 1996)"),
    ("streams", "N readers, each of another file (Wu 2010)"),
    ("random", "blocks in random order, by calls and through a mapping"),
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

/// Accesses every page of a file from front to back, and copies it into a buffer.
fn mmapit(sizes: &Sizes) -> Vec<Variant> {
    let pages = Sizes { block_bytes: PAGE_BYTES, ..sizes.clone() };
    let stream = Stream { mapped: true, ..pages.stream(Pattern::Sequential) };
    vec![Variant { timeline: true, ..Variant::of_one("mmapit", stream) }]
}

/// The five rows of Roudier's table (his seeks are the job `random`).
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

/// Sequential readers, each on another file.
fn streams(sizes: &Sizes) -> Vec<Variant> {
    let variant = |count: u64| {
        let part = |number| Part { file: number as usize, stream: sizes.stream(Pattern::Sequential), work: Work::None };
        let readers = (0..count).map(|number| vec![part(number)]).collect();
        let name = if count == 1 { "1 stream".into() } else { format!("{count} streams") };
        Variant { name, readers, timeline: false }
    };
    sizes.streams.iter().map(|count| variant(*count)).collect()
}

/// Single blocks in random order.
fn random(sizes: &Sizes) -> Vec<Variant> {
    let stream = Stream { most_blocks: sizes.count, ..sizes.stream(Pattern::Random) };
    // `count` blocks, also of a file with fewer blocks.
    let blocks = (stream.file_pages / stream.block_pages).max(1);
    let stream = Stream { passes: sizes.count.div_ceil(blocks), ..stream };
    vec![Variant::of_one("pread", stream), Variant::of_one("mmap", Stream { mapped: true, ..stream })]
}

fn patterns(sizes: &Sizes) -> Vec<Variant> {
    let one = |name: &str, pattern| Variant::of_one(name, sizes.stream(pattern));
    let small = Sizes { file_bytes: sizes.file_bytes / SCAN_FILES, ..sizes.clone() };
    // The first file is the large file of the other variants.
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
    fn every_stream_reads_another_file() {
        let job = named("streams", &sizes()).unwrap();
        assert_eq!(job.file_sizes(), [8 << 20; 3]);
        assert_eq!(job.variants[1].used_bytes(), 3 * (8 << 20));
    }

    #[test]
    fn small_file_is_read_at_random_count_times() {
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
