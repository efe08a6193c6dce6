//! The places of a file's blocks on the disk, and the blocks that must be read to find them.
//!
//! `extents` (ext4, XFS): a file is contiguous, and its inode contains the place.
//!
//! `ext2` (and ext3, by default): the inode points to the first 12 blocks. Further blocks need an indirect block of
//! 1024 pointers, a double-indirect block that points to 1024 indirect blocks, and so on. Each pointer block is
//! allocated when it is first needed. So it is right before the first block to which it points:
//!
//! ```text
//!     inode ──▶ d0 … d11 │ I │ d12 … d1035 │ II │ I │ d1036 … d2059 │ I │ d2060 …
//! ```
//!
//! The disk is divided into groups of 32768 blocks. Each group begins with the copies of superblock and descriptors,
//! two bitmaps and the inode table. They interrupt a long file.
//!
//! `ext2-1k` is the same with blocks of 1 KiB, the default of mke2fs in the nineties. Twelve blocks are three pages, an
//! indirect block points to 256 blocks (64 pages), and a group is 8 MiB. So a file of 200 MB has 800 pointer blocks
//! instead of 50. The model gives each of them the place of a page.
//!
//! Sources: Card, Ts'o and Tweedie, "Design and Implementation of the Second Extended Filesystem" (1994);
//! fs/ext2/inode.c (`ext2_block_to_path`, `ext2_alloc_branch`); the defaults of mke2fs. A block is a page, 4 KiB,
//! unless stated otherwise. The model gives every group the copies (without `sparse_super`): a difference of two blocks
//! in 516. Files do not fragment.

use ahead_policy::{PAGE_BYTES, Page};

/// The dimensions of an ext2 file system, in pages of 4 KiB.
#[derive(Clone, Copy, Debug)]
struct Measures {
    /// Pages to which the inode points directly: 12 blocks (`EXT2_NDIR_BLOCKS`).
    direct: u64,
    /// Pages to which an indirect block points, with pointers of four bytes.
    named: u64,
    /// Pointer blocks to which a double-indirect block points.
    fan: u64,
    /// Blocks of a group: the number of bits in a bitmap of one block.
    group: u64,
    /// Blocks of a group before its inode table: superblock, descriptors, two bitmaps.
    heads: u64,
    /// Blocks of a group's inode table.
    inode_table: u64,
    /// Inodes in a page of the table.
    inodes: u64,
}

/// Blocks of 4 KiB; an inode of 256 bytes for every 16 KiB (mke2fs.conf: `inode_ratio`, `inode_size`).
const BLOCKS_4K: Measures =
    Measures { direct: 12, named: 1024, fan: 1024, group: 32_768, heads: 4, inode_table: 512, inodes: 16 };
/// Blocks of 1 KiB; an inode of 128 bytes for every 4 KiB (mke2fs of 1994 to 2000).
const BLOCKS_1K: Measures =
    Measures { direct: 3, named: 64, fan: 256, group: 2048, heads: 1, inode_table: 64, inodes: 32 };

impl Measures {
    /// Blocks of a group before its first data block.
    fn overhead(&self) -> u64 {
        self.heads + self.inode_table
    }

    /// Blocks of a group for data and pointers.
    fn group_data(&self) -> u64 {
        self.group - self.overhead()
    }

    /// The disk block of the data block with this number, after the overhead of its group and of those before.
    fn block_of_data(&self, number: u64) -> Block {
        number / self.group_data() * self.group + self.overhead() + number % self.group_data()
    }

    /// Pages below a double-indirect block.
    fn double(&self) -> u64 {
        self.named * self.fan
    }
}

/// Inodes that are reserved before the first file (`EXT2_GOOD_OLD_FIRST_INO`).
const RESERVED_INODES: u64 = 11;
/// Alignment of the start of a file, blocks (1 MiB): file systems leave gaps.
const FILE_ALIGN_BLOCKS: u64 = (1 << 20) / PAGE_BYTES;

/// A block of the disk, 4 KiB.
pub type Block = u64;

/// How a file system lays out its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Contiguous.
    #[default]
    Extents,
    /// With indirect blocks, in block groups.
    Ext2,
    /// The same with blocks of 1 KiB.
    #[serde(rename = "ext2-1k")]
    Ext2Kib,
}

impl Scheme {
    /// The longest file, pages. ext2 counts a file's sectors of 512 bytes in 32 bits.
    pub fn most_pages(self) -> u64 {
        match self {
            Scheme::Extents => u64::MAX / PAGE_BYTES,
            Scheme::Ext2 => (1 << 41) / PAGE_BYTES,
            // Three levels of pointers.
            Scheme::Ext2Kib => 3 + 64 * (1 + 256 + 256 * 256),
        }
    }

    fn measures(self) -> Option<&'static Measures> {
        match self {
            Scheme::Extents => None,
            Scheme::Ext2 => Some(&BLOCKS_4K),
            Scheme::Ext2Kib => Some(&BLOCKS_1K),
        }
    }
}

/// A file on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// Length, pages; the last page is whole. A file that is being written grows.
    pub pages: u64,
    /// The layout of the file.
    scheme: Scheme,
    /// The first block: a block of the disk, or with ext2 a data block, counted without the overhead of the groups.
    first: u64,
    /// Number of files before this one in its group.
    number: u64,
}

/// Contiguous blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first block.
    pub block: Block,
    /// The number of contiguous pages of the file from here on.
    pub pages: u64,
}

/// Places files one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator {
    scheme: Scheme,
    /// The first free block.
    next: u64,
    group: u64,
    number: u64,
}

impl Allocator {
    /// An empty disk.
    pub fn new(scheme: Scheme) -> Allocator {
        Allocator { scheme, ..Allocator::default() }
    }

    /// Places the next file, with room up to this length.
    pub fn file(&mut self, pages: u64) -> FileLayout {
        let group = self.scheme.measures().map_or(0, |measures| self.next / measures.group_data());
        self.number = if group == self.group { self.number } else { 0 };
        self.group = group;
        let file = FileLayout { pages, scheme: self.scheme, first: self.next, number: self.number };
        self.number += 1;
        let pointers = pages.checked_sub(1).map_or(0, |last| file.pointers_before(last));
        self.next += (pages + pointers).next_multiple_of(FILE_ALIGN_BLOCKS);
        file
    }

    /// The size that the disk needs, bytes.
    pub fn disk_bytes(&self) -> u64 {
        let end = self.scheme.measures().map_or(self.next, |measures| measures.block_of_data(self.next));
        end * PAGE_BYTES
    }
}

impl FileLayout {
    /// A contiguous file.
    pub fn in_one_piece(pages: u64, first_block: Block) -> FileLayout {
        FileLayout { pages, scheme: Scheme::Extents, first: first_block, number: 0 }
    }

    /// The place of a page, and the number of contiguous pages from there on, whether the file has them or not.
    pub fn place(&self, page: Page) -> Place {
        let Some(measures) = self.scheme.measures() else {
            return Place { block: self.first + page, pages: u64::MAX };
        };
        let data = self.first + page + self.pointers_before(page);
        let named_together = match page.checked_sub(measures.direct) {
            None => measures.direct - page,
            Some(indirect) => measures.named - indirect % measures.named,
        };
        let of_group = measures.group_data() - data % measures.group_data();
        Place { block: measures.block_of_data(data), pages: named_together.min(of_group) }
    }

    /// Pointer blocks before a page.
    fn pointers_before(&self, page: Page) -> u64 {
        let Some(measures) = self.scheme.measures() else { return 0 };
        let Measures { direct, named, fan, .. } = *measures;
        let Some(indirect) = page.checked_sub(direct) else { return 0 };
        let Some(double) = indirect.checked_sub(named) else { return 1 };
        let Some(triple) = double.checked_sub(measures.double()) else { return 1 + 1 + double / named + 1 };
        1 + 1 + fan + 1 + triple / measures.double() + 1 + triple / named + 1
    }

    /// The number of pointer blocks that a file gets when this page is appended.
    pub fn new_pointers(&self, page: Page) -> usize {
        let before = page.checked_sub(1).map_or(0, |before| self.pointers_before(before));
        (self.pointers_before(page) - before) as usize
    }

    /// The pointer blocks on the path to a page, the outermost first.
    pub fn pointers(&self, page: Page) -> impl Iterator<Item = Block> + use<> {
        let measures = self.scheme.measures();
        // An outer block is before the first page below it, and before the inner blocks that begin there.
        let outside = |first: Page, outer: u64| self.first + first + self.pointers_before(first) - outer;
        let named = measures.and_then(|measures| Some((measures, page.checked_sub(measures.direct)?)));
        let levels = named.map_or([None; 3], |(measures, indirect)| {
            let leaf = outside(page - indirect % measures.named, 1);
            let double = indirect.checked_sub(measures.named);
            let numbers = match (double, double.and_then(|double| double.checked_sub(measures.double()))) {
                (None, _) => [None, None, Some(leaf)],
                (Some(double), None) => [None, Some(outside(page - double, 2)), Some(leaf)],
                (Some(_), Some(triple)) => {
                    let middle = outside(page - triple % measures.double(), 2);
                    [Some(outside(page - triple, 3)), Some(middle), Some(leaf)]
                }
            };
            numbers.map(|number| number.map(|number| measures.block_of_data(number)))
        });
        levels.into_iter().flatten()
    }

    /// The block of the inode table that contains the inode; `None`: the inode is not modelled.
    pub fn inode(&self) -> Option<Block> {
        let measures = self.scheme.measures()?;
        let in_table = (RESERVED_INODES + self.number) / measures.inodes;
        Some(self.first / measures.group_data() * measures.group + measures.heads + in_table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The places of the file's blocks in the order in which ext2 allocates them: pointer blocks when they are first
    /// needed. An indirect block points to `named` pages, each outer block to `fan` blocks.
    fn allocated(
        pages: u64,
        direct: u64,
        named: u64,
        fan: u64,
        block_of_data: fn(u64) -> Block,
    ) -> Vec<(Vec<Block>, Block)> {
        let (mut next, mut chain) = (0, [0; 3]);
        let mut take = || {
            next += 1;
            block_of_data(next - 1)
        };
        let mut list = Vec::new();
        for page in 0..pages {
            let mut leads = Vec::new();
            if let Some(indirect) = page.checked_sub(direct) {
                let (depth, within) = match indirect {
                    _ if indirect < named => (1, indirect),
                    _ if indirect - named < named * fan => (2, indirect - named),
                    _ => (3, indirect - named - named * fan),
                };
                for level in (0..depth).rev() {
                    if within % (named * fan.pow(level)) == 0 {
                        chain[level as usize] = take();
                    }
                    leads.push(chain[level as usize]);
                }
            }
            list.push((leads, take()));
        }
        list
    }

    #[test]
    fn places_equal_those_of_block_by_block_allocation() {
        let of_4k = |number| number / 32_252 * 32_768 + 516 + number % 32_252;
        let of_1k = |number| number / 1983 * 2048 + 65 + number % 1983;
        // Beyond the first triple-indirect block, and across several block groups.
        let (pages_4k, pages_1k) = (12 + 1024 + 1024 * 1024 + 3000, 3 + 64 + 64 * 256 + 3000);
        for (scheme, pages, list) in [
            (Scheme::Ext2, pages_4k, allocated(pages_4k, 12, 1024, 1024, of_4k)),
            (Scheme::Ext2Kib, pages_1k, allocated(pages_1k, 3, 64, 256, of_1k)),
        ] {
            let file = Allocator::new(scheme).file(pages);
            let mut seen = BTreeSet::new();
            for (page, (leads, block)) in list.into_iter().enumerate() {
                assert_eq!(file.place(page as u64).block, block, "page {page}");
                assert!(file.pointers(page as u64).eq(leads.iter().copied()), "page {page}: {leads:?}");
                let new = leads.iter().filter(|lead| seen.insert(**lead)).count();
                assert_eq!(file.new_pointers(page as u64), new, "page {page}");
            }
        }
    }

    #[test]
    fn contiguous_run_ends_before_a_distant_page() {
        let mut allocator = Allocator::new(Scheme::Ext2);
        allocator.file(BLOCKS_4K.group_data() - 700);
        let file = allocator.file(5000);
        let mut page = 0;
        let mut rows = Vec::new();
        while page < 5000 {
            let Place { block, pages } = file.place(page);
            for further in 0..pages {
                assert_eq!(file.place(page + further).block, block + further);
            }
            assert_ne!(file.place(page + pages).block, block + pages, "page {}", page + pages);
            rows.push(pages);
            page += pages;
        }
        // Twelve direct blocks, then the rest of the group, then the rest of the indirect block's pages.
        assert_eq!(rows[0], 12);
        assert!(rows[1] < 1024 && rows[1] + rows[2] == 1024 && rows[3] == 1024, "{rows:?}");
    }

    #[test]
    fn places_never_overlap() {
        let mut allocator = Allocator::new(Scheme::Ext2);
        let files: Vec<FileLayout> = (0..40).map(|index| allocator.file(1 + index * 97)).collect();
        let mut taken = BTreeSet::new();
        for file in &files {
            let pointers: BTreeSet<Block> = (0..file.pages).flat_map(|page| file.pointers(page)).collect();
            let data = (0..file.pages).map(|page| file.place(page).block);
            for block in data.chain(pointers) {
                assert!(block % BLOCKS_4K.group >= BLOCKS_4K.overhead() && taken.insert(block), "{block}");
                assert!(block * PAGE_BYTES < allocator.disk_bytes());
            }
        }
    }

    #[test]
    fn sixteen_inodes_share_a_block() {
        let mut allocator = Allocator::new(Scheme::Ext2);
        let files: Vec<FileLayout> = (0..40).map(|_| allocator.file(1)).collect();
        let inodes: Vec<Block> = files.iter().filter_map(FileLayout::inode).collect();
        // The eleventh inode of the first block, then whole blocks.
        assert_eq!([inodes[0], inodes[4], inodes[5], inodes[20], inodes[21], inodes[39]], [4, 4, 5, 5, 6, 7]);
        // A file of the next group has its inode in that group.
        allocator.file(BLOCKS_4K.group_data());
        assert_eq!(allocator.file(1).inode(), Some(BLOCKS_4K.group + 4));
    }

    #[test]
    fn extents_are_contiguous_without_metadata() {
        let mut allocator = Allocator::new(Scheme::Extents);
        let (first, second) = (allocator.file(300), allocator.file(1));
        assert_eq!(first.place(299).block, 299);
        assert_eq!(second.place(0).block, 512);
        assert!(first.pointers(299).next().is_none() && first.inode().is_none());
        assert_eq!(allocator.disk_bytes(), 3 << 20);
    }
}
