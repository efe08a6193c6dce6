//! The verdicts on Opdenacker's boots. A change of the simulator that breaks a line fails here.

mod common;

#[test]
fn every_line_comes_to_what_it_came_to() {
    common::check(
        "opdenacker",
        36,
        &[
            ("POSIX_FADV_WILLNEED does not block", "not-shown"),
            ("POSIX_FADV_NOREUSE", "not-shown"),
            ("POSIX_FADV_DONTNEED", "not-shown"),
            ("readahead blocks until all data have been read", "not-shown"),
            ("the adaptive patches' window", "not-shown"),
            ("Ubuntu Edgy, boot time without readahead", "not-shown"),
            ("Ubuntu Edgy, idle time without readahead", "not-shown"),
            ("standard deviations, Ubuntu Edgy", "not-shown"),
            ("standard deviations, Fedora Core 6", "not-shown"),
            ("Fedora Core 6, boot time without readahead", "not-shown"),
            ("Fedora Core 6, idle time without readahead", "not-shown"),
            ("Fedora Core 6, boot time with readahead", "differs"),
            ("Fedora Core 6, change of boot time", "differs"),
            ("Fedora Core 6, idle time with readahead", "differs"),
            ("Fedora Core 6, change of idle time", "differs"),
        ],
    );
}
