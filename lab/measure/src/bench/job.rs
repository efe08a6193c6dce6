//! Jobs: a job has variants, a variant has readers, a reader has parts.

use ahead_policy::{FileId, PAGE_BYTES, Page};
use ahead_sim::{Stream, foretell};
use std::ops::Range;
use std::sync::Arc;

/// The work of a reader on the bytes, besides the stream's own computing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// None: the call copies the bytes into a buffer, or the reader copies them once out of the mapping (`mmapit`).
    #[default]
    None,
    /// One byte at a time, as with `getc` and `putc` (Bonnie's per-char rows).
    Chars,
}

/// A stream on one file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Index of the file.
    pub file: usize,
    pub stream: Stream,
    /// The work on the bytes.
    pub work: Work,
}

impl Part {
    /// The pages that each call reads.
    fn pages(&self) -> impl Iterator<Item = (FileId, Range<Page>)> {
        let file = FileId(self.file as u32);
        self.stream.ops().filter_map(move |op| op.pages().map(|(_, pages)| (file, pages)))
    }
}

/// A row of a job: readers that run at the same time, each with a sequence of parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    pub name: String,
    pub readers: Vec<Vec<Part>>,
    /// Take samples of user, system and idle time.
    pub timeline: bool,
}

impl Variant {
    /// A variant of one reader with one part on the first file.
    pub fn of_one(name: &str, stream: Stream) -> Variant {
        let part = Part { file: 0, stream, work: Work::None };
        Variant { name: name.into(), readers: vec![vec![part]], timeline: false }
    }

    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.readers.iter().flatten()
    }

    /// Bytes of a call; a page for a mapping.
    pub fn block_bytes(&self) -> u64 {
        let of = |part: &Part| if part.stream.mapped { PAGE_BYTES } else { part.stream.call_bytes };
        self.parts().map(of).max().unwrap_or(0)
    }

    /// All future accesses, for readers that take turns call by call; file numbers are the indices in the parts.
    pub fn future(&self) -> Arc<[(FileId, Page)]> {
        foretell(self.readers.iter().map(|parts| parts.iter().flat_map(Part::pages)))
    }

    /// Bytes of the pages that are read at least once, each counted once; written pages do not count.
    pub fn used_bytes(&self) -> u64 {
        let mut used: Vec<Vec<bool>> = Vec::new();
        for part in self.parts() {
            used.resize(used.len().max(part.file + 1), Vec::new());
            let pages = &mut used[part.file];
            pages.resize(pages.len().max(part.stream.file_pages as usize), false);
            for (_, range) in part.pages() {
                let end = (range.end as usize).min(pages.len());
                pages[(range.start as usize).min(end)..end].fill(true);
            }
        }
        used.iter().flatten().filter(|is_used| **is_used).count() as u64 * PAGE_BYTES
    }
}

/// A program of the papers, or a common pattern of programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: &'static str,
    pub variants: Vec<Variant>,
}

impl Job {
    /// Sizes of its files, bytes.
    pub fn file_sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = Vec::new();
        for part in self.variants.iter().flat_map(Variant::parts) {
            sizes.resize(sizes.len().max(part.file + 1), 0);
            sizes[part.file] = sizes[part.file].max(part.stream.file_pages * PAGE_BYTES);
        }
        sizes
    }
}
