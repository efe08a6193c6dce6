//! Limits of XFS that the planner and the system calls share.

/// Inodes that XFS allocates together, and reads ahead together (`XFS_INODES_PER_CHUNK`, fs/xfs/libxfs/xfs_format.h). Chunks
/// begin at multiples of it.
pub const CHUNK_INODES: u64 = 64;

/// Inodes that one call reads ahead at most (`IWALK_MAX_INODE_PREFETCH`, fs/xfs/xfs_iwalk.c).
pub const MAX_PREFETCH_INODES: u32 = 2048;
