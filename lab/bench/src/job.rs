//! What is run: a job has variants, a variant has readers, a reader has parts.

use ahead_policy::{FileId, PAGE_BYTES, Page};
use ahead_sim::{Stream, foretell};
use std::ops::Range;
use std::sync::Arc;

/// What a reader does with the bytes that it got, besides the stream's own computing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// Nothing: they are copied into its buffer by the call, or copied once out of the mapping (`mmapit`).
    #[default]
    None,
    /// Each byte by itself, as `getc` and `putc` (Bonnie's per-char rows).
    Chars,
}

/// A way through one file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Number of the file.
    pub file: usize,
    /// The way.
    pub stream: Stream,
    /// What is done with the bytes.
    pub work: Work,
}

impl Part {
    /// What each of its calls reads.
    fn pages(&self) -> impl Iterator<Item = (FileId, Range<Page>)> {
        let file = FileId(self.file as u32);
        self.stream.ops().filter_map(move |op| op.pages().map(|(_, pages)| (file, pages)))
    }
}

/// One row of a job: readers that run at the same time, each with its parts one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// What it is called.
    pub name: String,
    /// The readers.
    pub readers: Vec<Vec<Part>>,
    /// It is of interest how user, system and idle time went.
    pub timeline: bool,
}

impl Variant {
    /// One reader with one part on the first file.
    pub fn of_one(name: &str, stream: Stream) -> Variant {
        let part = Part { file: 0, stream, work: Work::None };
        Variant { name: name.into(), readers: vec![vec![part]], timeline: false }
    }

    /// All parts.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.readers.iter().flatten()
    }

    /// What a call reads, bytes; of a mapping the page.
    pub fn block_bytes(&self) -> u64 {
        let of = |part: &Part| if part.stream.mapped { PAGE_BYTES } else { part.stream.call_bytes };
        self.parts().map(of).max().unwrap_or(0)
    }

    /// Every access that will come, if readers take turns call by call; files are numbered as in the parts.
    pub fn future(&self) -> Arc<[(FileId, Page)]> {
        foretell(self.readers.iter().map(|parts| parts.iter().flat_map(Part::pages)))
    }

    /// Bytes of all files that are read at least once, each page of it counted once; what is written is not among them.
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

/// A program of the papers, or what programs do.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What it is called.
    pub name: &'static str,
    /// Its rows.
    pub variants: Vec<Variant>,
}

impl Job {
    /// Sizes of the files that it needs, bytes.
    pub fn file_sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = Vec::new();
        for part in self.variants.iter().flat_map(Variant::parts) {
            sizes.resize(sizes.len().max(part.file + 1), 0);
            sizes[part.file] = sizes[part.file].max(part.stream.file_pages * PAGE_BYTES);
        }
        sizes
    }
}
