//! The system calls that read an open file (`read_calls` in `bpf/counter_places.h`).

/// Number of the call on this architecture, and the argument that is the descriptor: the first or the second.
pub(super) fn read_calls() -> Vec<(u32, u32)> {
    let all = [
        (libc::SYS_read, 1),
        (libc::SYS_pread64, 1),
        (libc::SYS_readv, 1),
        (libc::SYS_preadv, 1),
        (libc::SYS_preadv2, 1),
        (libc::SYS_splice, 1),
        (libc::SYS_copy_file_range, 1),
        (libc::SYS_sendfile, 2),
    ];
    all.into_iter().filter_map(|(number, argument)| Some((u32::try_from(number).ok()?, argument))).collect()
}
