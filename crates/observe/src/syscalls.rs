//! The system calls that name a path, with the position of the argument (`struct call` in `bpf/lookup.h`).
//!
//! Only calls that look up a path. Calls that create, rename or remove files are left out: the next run does not need lookups
//! of new files.

/// The position of a call's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The first argument is the path.
    Path,
    /// The first argument is a directory's descriptor, the second the path.
    At,
    /// The first argument is the descriptor of a directory that is listed.
    Lists,
    /// The first argument is the path of the new working directory.
    ChangesDirectory,
}

impl Shape {
    /// The bytes of `struct call`.
    pub(crate) fn encode(self) -> [u8; 4] {
        match self {
            Shape::Path => [1, 0, 0, 0],
            Shape::At => [1, 1, 0, 0],
            Shape::Lists => [1, 0, 1, 0],
            Shape::ChangesDirectory => [1, 0, 0, 1],
        }
    }
}

/// Every watched call with its number on this architecture.
pub(crate) fn calls() -> Vec<(u32, Shape)> {
    let at = [
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_faccessat,
        libc::SYS_faccessat2,
        libc::SYS_readlinkat,
        libc::SYS_execveat,
        libc::SYS_name_to_handle_at,
    ];
    let path = [libc::SYS_execve, libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_statfs];
    let mut calls: Vec<(i64, Shape)> = at.map(|number| (number, Shape::At)).to_vec();
    calls.extend(path.map(|number| (number, Shape::Path)));
    calls.push((libc::SYS_getdents64, Shape::Lists));
    calls.push((libc::SYS_chdir, Shape::ChangesDirectory));
    calls.extend(old_calls());
    calls.into_iter().filter_map(|(number, shape)| Some((u32::try_from(number).ok()?, shape))).collect()
}

#[cfg(target_arch = "x86_64")]
fn old_calls() -> Vec<(i64, Shape)> {
    let path = [libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink];
    let mut calls: Vec<_> = path.map(|number| (number, Shape::Path)).to_vec();
    calls.push((libc::SYS_getdents, Shape::Lists));
    calls
}

#[cfg(not(target_arch = "x86_64"))]
fn old_calls() -> Vec<(i64, Shape)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn shapes_have_the_layout_of_the_structure() {
        let layout = Layout::of("ahead");
        for (shape, member) in [
            (Shape::Path, None),
            (Shape::At, Some("has_directory")),
            (Shape::Lists, Some("lists")),
            (Shape::ChangesDirectory, Some("changes_directory")),
        ] {
            let values: Vec<_> = ["known"].into_iter().chain(member).map(|name| (name, 1)).collect();
            assert_eq!(shape.encode().to_vec(), layout.bytes("call", &values), "{shape:?}");
        }
    }

    #[test]
    fn call_numbers_fit_the_map_and_are_unique() {
        let mut numbers: Vec<u32> = calls().into_iter().map(|(number, _)| number).collect();
        assert!(numbers.iter().all(|number| *number < 512), "{numbers:?}");
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
