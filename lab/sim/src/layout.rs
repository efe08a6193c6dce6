//! Where the blocks of files lie on the disk, and what has to be read before they can be found.
//!
//! `extents` (ext4, XFS): a file lies in one piece, and its inode tells where.
//!
//! `ext2` (and ext3, by default): the inode names the first 12 blocks. Further ones are named by an indirect block of
//! 1024 pointers, by a double-indirect block that names 1024 of these, and so on. Each is allocated when it is first
//! needed, so it lies right before the first block that it names:
//!
//! ```text
//!     inode ──▶ d0 … d11 │ I │ d12 … d1035 │ II │ I │ d1036 … d2059 │ I │ d2060 …
//! ```
//!
//! The disk is divided into groups of 32768 blocks. Each begins with the copies of superblock and descriptors, two
//! bitmaps and the inode table, which interrupt a long file.
//!
//! `ext2-1k` is the same with blocks of 1 KiB, as mke2fs made them in the nineties: 12 of them are three pages, an
//! indirect block names 256, which are 64 pages, and a group is 8 MiB. So a file of 200 MB has 800 pointer blocks
//! instead of 50. Here each takes the place of a page.
//!
//! Sources: Card, Ts'o and Tweedie, "Design and Implementation of the Second Extended Filesystem" (1994);
//! fs/ext2/inode.c (`ext2_block_to_path`, `ext2_alloc_branch`); the defaults of mke2fs. A block is a page, 4 KiB, if
//! nothing else is said. Every group is taken to have the copies (without `sparse_super`): two blocks in 516 of
//! difference. Files do not fragment.

use ahead_policy::{PAGE_BYTES, Page};

/// The measures of an ext2, in pages of 4 KiB.
#[derive(Clone, Copy, Debug)]
struct Measures {
    /// Pages whose blocks the inode names itself: 12 blocks (`EXT2_NDIR_BLOCKS`).
    direct: u64,
    /// Pages whose blocks an indirect block names, with pointers of four bytes.
    named: u64,
    /// Pointer blocks that a double-indirect block names.
    fan: u64,
    /// A group: as many blocks as a bitmap of one block has bits.
    group: u64,
    /// What begins a group before its inode table: superblock, descriptors, two bitmaps.
    heads: u64,
    /// A group's inode table.
    inode_table: u64,
    /// Inodes in a page of it.
    inodes: u64,
}

/// Blocks of 4 KiB; an inode of 256 bytes for every 16 KiB (mke2fs.conf: `inode_ratio`, `inode_size`).
const BLOCKS_4K: Measures =
    Measures { direct: 12, named: 1024, fan: 1024, group: 32_768, heads: 4, inode_table: 512, inodes: 16 };
/// Blocks of 1 KiB; an inode of 128 bytes for every 4 KiB (mke2fs of 1994 to 2000).
const BLOCKS_1K: Measures =
    Measures { direct: 3, named: 64, fan: 256, group: 2048, heads: 1, inode_table: 64, inodes: 32 };

impl Measures {
    /// Before a group's first data block.
    fn overhead(&self) -> u64 {
        self.heads + self.inode_table
    }

    /// Places for data and pointers in a group.
    fn group_data(&self) -> u64 {
        self.group - self.overhead()
    }

    /// Where the data block with this number lies: after what begins its group and those before it.
    fn block_of_data(&self, number: u64) -> Block {
        number / self.group_data() * self.group + self.overhead() + number % self.group_data()
    }

    /// Pages that a double-indirect block leads to.
    fn double(&self) -> u64 {
        self.named * self.fan
    }
}

/// Inodes that are taken before the first file (`EXT2_GOOD_OLD_FIRST_INO`).
const RESERVED_INODES: u64 = 11;
/// A file begins at a multiple of this, blocks (1 MiB): file systems leave gaps.
const FILE_ALIGN_BLOCKS: u64 = (1 << 20) / PAGE_BYTES;

/// A block of the disk, 4 KiB.
pub type Block = u64;

/// How a file system lays out its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// In one piece.
    #[default]
    Extents,
    /// With indirect blocks, in block groups.
    Ext2,
    /// The same with blocks of 1 KiB.
    #[serde(rename = "ext2-1k")]
    Ext2Kib,
}

impl Scheme {
    /// Longest file, pages: ext2 counts a file's sectors of 512 bytes in 32 bits.
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
    /// Length, pages; the last one is whole. A file that is being written grows.
    pub pages: u64,
    /// How it lies there.
    scheme: Scheme,
    /// Where it begins: a block of the disk, or with ext2 one of its data blocks, counted without what begins the
    /// groups.
    first: u64,
    /// Files before it in its group.
    number: u64,
}

/// Blocks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first one.
    pub block: Block,
    /// How many pages of the file lie there before something else does.
    pub pages: u64,
}

/// Lays out files one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator {
    scheme: Scheme,
    /// Blocks that are taken.
    next: u64,
    group: u64,
    number: u64,
}

impl Allocator {
    /// An empty disk.
    pub fn new(scheme: Scheme) -> Allocator {
        Allocator { scheme, ..Allocator::default() }
    }

    /// The next file; room is left for it up to this length.
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

    /// How large the disk has to be, bytes.
    pub fn disk_bytes(&self) -> u64 {
        let end = self.scheme.measures().map_or(self.next, |measures| measures.block_of_data(self.next));
        end * PAGE_BYTES
    }
}

impl FileLayout {
    /// A file in one piece.
    pub fn in_one_piece(pages: u64, first_block: Block) -> FileLayout {
        FileLayout { pages, scheme: Scheme::Extents, first: first_block, number: 0 }
    }

    /// Where a page lies, and how many in a row from it on, whether the file has them or not.
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

    /// Pointer blocks that lie before a page.
    fn pointers_before(&self, page: Page) -> u64 {
        let Some(measures) = self.scheme.measures() else { return 0 };
        let Measures { direct, named, fan, .. } = *measures;
        let Some(indirect) = page.checked_sub(direct) else { return 0 };
        let Some(double) = indirect.checked_sub(named) else { return 1 };
        let Some(triple) = double.checked_sub(measures.double()) else { return 1 + 1 + double / named + 1 };
        1 + 1 + fan + 1 + triple / measures.double() + 1 + triple / named + 1
    }

    /// How many pointer blocks a file gets when it grows by this page.
    pub fn new_pointers(&self, page: Page) -> usize {
        let before = page.checked_sub(1).map_or(0, |before| self.pointers_before(before));
        (self.pointers_before(page) - before) as usize
    }

    /// The pointer blocks that lead to a page, the outermost first.
    pub fn pointers(&self, page: Page) -> impl Iterator<Item = Block> + use<> {
        let measures = self.scheme.measures();
        // The outer ones lie before the first page that they lead to, and before the inner ones that begin there.
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

    /// The block of the inode table that has its inode; `None`: it costs nothing here.
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

    /// Where the file's blocks lie, by going through the file as ext2 allocates it: pointer blocks when they are
    /// first needed. An indirect block names `named` pages, each of the others `fan` blocks.
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
    fn blocks_lie_where_ext2_puts_them_one_by_one() {
        let of_4k = |number| number / 32_252 * 32_768 + 516 + number % 32_252;
        let of_1k = |number| number / 1983 * 2048 + 65 + number % 1983;
        // Beyond the first triple-indirect group of blocks, and over several block groups.
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
    fn a_row_ends_where_the_next_page_lies_elsewhere() {
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
        // Twelve direct blocks, then up to the end of the group, then what is left of the indirect block's.
        assert_eq!(rows[0], 12);
        assert!(rows[1] < 1024 && rows[1] + rows[2] == 1024 && rows[3] == 1024, "{rows:?}");
    }

    #[test]
    fn nothing_lies_where_something_else_does() {
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
        // The eleventh of the first block, then whole blocks.
        assert_eq!([inodes[0], inodes[4], inodes[5], inodes[20], inodes[21], inodes[39]], [4, 4, 5, 5, 6, 7]);
        // A file of the next group has its inode there.
        allocator.file(BLOCKS_4K.group_data());
        assert_eq!(allocator.file(1).inode(), Some(BLOCKS_4K.group + 4));
    }

    #[test]
    fn extents_lie_in_one_piece_and_cost_nothing() {
        let mut allocator = Allocator::new(Scheme::Extents);
        let (first, second) = (allocator.file(300), allocator.file(1));
        assert_eq!(first.place(299).block, 299);
        assert_eq!(second.place(0).block, 512);
        assert!(first.pointers(299).next().is_none() && first.inode().is_none());
        assert_eq!(allocator.disk_bytes(), 3 << 20);
    }
}
