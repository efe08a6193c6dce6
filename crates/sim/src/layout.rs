//! Where the blocks of files lie on the disk, and what has to be read before they can be found.
//!
//! `extents` (ext4, XFS): a file lies in one piece, and its inode tells where.
//!
//! `ext2` (and ext3, by default): the inode names the first 12 blocks. Further ones are named by an indirect block of 1024
//! pointers, by a double-indirect block that names 1024 of these, and so on. Each is allocated when it is first needed, so it
//! lies right before the first block that it names:
//!
//! ```text
//!     inode ──▶ d0 … d11 │ I │ d12 … d1035 │ II │ I │ d1036 … d2059 │ I │ d2060 …
//! ```
//!
//! The disk is divided into groups of 32768 blocks. Each begins with the copies of superblock and descriptors, two bitmaps and
//! the inode table, which interrupt a long file.
//!
//! Sources: Card, Ts'o and Tweedie, "Design and Implementation of the Second Extended Filesystem" (1994); fs/ext2/inode.c
//! (`ext2_block_to_path`, `ext2_alloc_branch`); the defaults of mke2fs. A block is a page, 4 KiB. Every group is taken to have
//! the copies (without `sparse_super`): two blocks in 516 of difference. Files do not fragment.

use ahead_policy::{PAGE_BYTES, Page};

/// Blocks that the inode names itself (`EXT2_NDIR_BLOCKS`).
pub const DIRECT_BLOCKS: u64 = 12;
/// Pointers of four bytes in a block of 4 KiB.
pub const POINTERS: u64 = 1024;
/// Blocks of a group: as many as a bitmap of one block has bits.
pub const GROUP_BLOCKS: u64 = 32_768;
/// Blocks of a group's inode table: an inode of 256 bytes for every 16 KiB (mke2fs.conf: `inode_ratio`, `inode_size`).
const INODE_TABLE_BLOCKS: u64 = 512;
/// Before a group's first data block: superblock, descriptors, two bitmaps, inode table.
const GROUP_OVERHEAD_BLOCKS: u64 = 4 + INODE_TABLE_BLOCKS;
/// Data blocks of a group.
const GROUP_DATA_BLOCKS: u64 = GROUP_BLOCKS - GROUP_OVERHEAD_BLOCKS;
/// Inodes of a block: 4096 / 256.
const INODES_PER_BLOCK: u64 = 16;
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
}

impl Scheme {
    /// Longest file, pages: ext2 counts a file's sectors of 512 bytes in 32 bits.
    pub fn most_pages(self) -> u64 {
        match self {
            Scheme::Extents => u64::MAX / PAGE_BYTES,
            Scheme::Ext2 => (1 << 41) / PAGE_BYTES,
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
    /// Where it begins: a block of the disk, or with ext2 one of its data blocks, counted without what begins the groups.
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
        let group = self.next / GROUP_DATA_BLOCKS;
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
        let end = match self.scheme {
            Scheme::Extents => self.next,
            Scheme::Ext2 => block_of_data(self.next),
        };
        end * PAGE_BYTES
    }
}

/// Where ext2's data block with this number lies: after what begins its group and those before it.
fn block_of_data(number: u64) -> Block {
    number / GROUP_DATA_BLOCKS * GROUP_BLOCKS + GROUP_OVERHEAD_BLOCKS + number % GROUP_DATA_BLOCKS
}

impl FileLayout {
    /// A file in one piece.
    pub fn in_one_piece(pages: u64, first_block: Block) -> FileLayout {
        FileLayout { pages, scheme: Scheme::Extents, first: first_block, number: 0 }
    }

    /// Where a page lies, and how many in a row from it on, whether the file has them or not.
    pub fn place(&self, page: Page) -> Place {
        match self.scheme {
            Scheme::Extents => Place { block: self.first + page, pages: u64::MAX },
            Scheme::Ext2 => {
                let data = self.first + page + self.pointers_before(page);
                let named_together = match page.checked_sub(DIRECT_BLOCKS) {
                    None => DIRECT_BLOCKS - page,
                    Some(indirect) => POINTERS - indirect % POINTERS,
                };
                let of_group = GROUP_DATA_BLOCKS - data % GROUP_DATA_BLOCKS;
                Place { block: block_of_data(data), pages: named_together.min(of_group) }
            }
        }
    }

    /// Pointer blocks that lie before a page.
    fn pointers_before(&self, page: Page) -> u64 {
        if self.scheme == Scheme::Extents {
            return 0;
        }
        let Some(indirect) = page.checked_sub(DIRECT_BLOCKS) else { return 0 };
        let Some(double) = indirect.checked_sub(POINTERS) else { return 1 };
        let Some(triple) = double.checked_sub(POINTERS * POINTERS) else { return 1 + 1 + double / POINTERS + 1 };
        1 + 1 + POINTERS + 1 + triple / (POINTERS * POINTERS) + 1 + triple / POINTERS + 1
    }

    /// How many pointer blocks a file gets when it grows by this page.
    pub fn new_pointers(&self, page: Page) -> usize {
        let before = page.checked_sub(1).map_or(0, |before| self.pointers_before(before));
        (self.pointers_before(page) - before) as usize
    }

    /// The pointer blocks that lead to a page, the outermost first.
    pub fn pointers(&self, page: Page) -> impl Iterator<Item = Block> + use<> {
        // The outer ones lie before the first page that they lead to, and before the inner ones that begin there.
        let outside = |first: Page, outer: u64| self.first + first + self.pointers_before(first) - outer;
        let levels = match page.checked_sub(DIRECT_BLOCKS) {
            _ if self.scheme == Scheme::Extents => [None; 3],
            None => [None; 3],
            Some(indirect) => {
                let leaf = outside(page - indirect % POINTERS, 1);
                match indirect.checked_sub(POINTERS) {
                    None => [None, None, Some(leaf)],
                    Some(double) => match double.checked_sub(POINTERS * POINTERS) {
                        None => [None, Some(outside(page - double, 2)), Some(leaf)],
                        Some(triple) => {
                            let middle = outside(page - triple % (POINTERS * POINTERS), 2);
                            [Some(outside(page - triple, 3)), Some(middle), Some(leaf)]
                        }
                    },
                }
            }
        };
        levels.into_iter().flatten().map(block_of_data)
    }

    /// The block of the inode table that has its inode; `None`: it costs nothing here.
    pub fn inode(&self) -> Option<Block> {
        let in_table = (RESERVED_INODES + self.number) / INODES_PER_BLOCK;
        let table = self.first / GROUP_DATA_BLOCKS * GROUP_BLOCKS + GROUP_OVERHEAD_BLOCKS - INODE_TABLE_BLOCKS;
        (self.scheme == Scheme::Ext2).then_some(table + in_table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What lies where, by going through the file as ext2 allocates it: pointer blocks when they are first needed.
    fn allocated(pages: u64) -> Vec<(Vec<Block>, Block)> {
        let (mut next, mut chain) = (0, [0; 3]);
        let mut take = || {
            next += 1;
            block_of_data(next - 1)
        };
        let mut list = Vec::new();
        for page in 0..pages {
            let mut leads = Vec::new();
            if let Some(indirect) = page.checked_sub(12) {
                let (depth, within) = match indirect {
                    0..1024 => (1, indirect),
                    _ if indirect - 1024 < 1024 * 1024 => (2, indirect - 1024),
                    _ => (3, indirect - 1024 - 1024 * 1024),
                };
                for level in (0..depth).rev() {
                    if within % 1024_u64.pow(level + 1) == 0 {
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
        // Beyond the first triple-indirect group of blocks, and over several block groups.
        let pages = 12 + 1024 + 1024 * 1024 + 3000;
        let mut allocator = Allocator::new(Scheme::Ext2);
        let file = allocator.file(pages);
        let mut seen = BTreeSet::new();
        for (page, (leads, block)) in allocated(pages).into_iter().enumerate() {
            assert_eq!(file.place(page as u64).block, block, "page {page}");
            assert!(file.pointers(page as u64).eq(leads.iter().copied()), "page {page}: {leads:?}");
            let new = leads.iter().filter(|lead| seen.insert(**lead)).count();
            assert_eq!(file.new_pointers(page as u64), new, "page {page}");
        }
    }

    #[test]
    fn a_row_ends_where_the_next_page_lies_elsewhere() {
        let mut allocator = Allocator::new(Scheme::Ext2);
        allocator.file(GROUP_DATA_BLOCKS - 700);
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
                assert!(block % GROUP_BLOCKS >= GROUP_OVERHEAD_BLOCKS && taken.insert(block), "{block}");
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
        allocator.file(GROUP_DATA_BLOCKS);
        assert_eq!(allocator.file(1).inode(), Some(GROUP_BLOCKS + 4));
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
