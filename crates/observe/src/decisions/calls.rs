//! The system calls that read, open and advise, with the meaning of their arguments (`enum call` in `bpf/decision.h`).

/// The calls with their numbers on this architecture.
pub(super) fn calls() -> Vec<(u32, u32)> {
    let all = [
        (libc::SYS_read, 1),
        (libc::SYS_pread64, 2),
        (libc::SYS_readv, 3),
        (libc::SYS_preadv, 4),
        (libc::SYS_preadv2, 11),
        (libc::SYS_openat, 5),
        (libc::SYS_openat2, 5),
        (libc::SYS_fadvise64, 6),
        (libc::SYS_readahead, 7),
        (libc::SYS_madvise, 8),
        (libc::SYS_sendfile, 9),
        (libc::SYS_copy_file_range, 10),
        (libc::SYS_splice, 10),
    ];
    let all = all.into_iter().chain(old_calls());
    all.filter_map(|(number, call)| Some((u32::try_from(number).ok()?, call))).collect()
}

#[cfg(target_arch = "x86_64")]
fn old_calls() -> Vec<(i64, u32)> {
    vec![(libc::SYS_open, 5), (libc::SYS_creat, 5)]
}

#[cfg(not(target_arch = "x86_64"))]
fn old_calls() -> Vec<(i64, u32)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn calls_have_the_numbers_of_the_enum() {
        let layout = Layout::of("layout_decisions");
        for (number, name) in [
            (libc::SYS_read, "CALL_READ"),
            (libc::SYS_pread64, "CALL_PREAD"),
            (libc::SYS_readv, "CALL_READV"),
            (libc::SYS_preadv, "CALL_PREADV"),
            (libc::SYS_preadv2, "CALL_PREADV2"),
            (libc::SYS_openat, "CALL_OPEN"),
            (libc::SYS_fadvise64, "CALL_FADVISE"),
            (libc::SYS_readahead, "CALL_READAHEAD"),
            (libc::SYS_madvise, "CALL_MADVISE"),
            (libc::SYS_sendfile, "CALL_SENDFILE"),
            (libc::SYS_splice, "CALL_SPLICE"),
        ] {
            let call = (number as u32, layout.value("call", name) as u32);
            assert!(calls().contains(&call), "{name}");
        }
    }
}
