//! The table of a process's descriptors.

/// Makes room for descriptors below `count` now. The kernel doubles the table when it is full (at 64, 128, 256 …). If threads share it, every
/// open(2) then waits for an RCU grace period, 7 to 10 ms (`expand_fdtable`, fs/file.c). With one thread there is no wait: call this before the
/// first thread starts. Where the limit (`ulimit -n`) is lower, nothing changes.
pub fn reserve(count: u32) {
    let highest = i32::try_from(count).unwrap_or(i32::MAX).saturating_sub(1);
    // A duplicate with the highest number; closing it does not shrink the table.
    let duplicate = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), highest);
    if let Err(error) = duplicate {
        tracing::debug!("no room for {count} descriptors: {error}");
    }
}

#[cfg(test)]
mod tests {
    /// Regression: `replay` waited for 8 ms each time the table grew, 36 ms of 250 for gcc and 70 ms of 390 for Python.
    #[test]
    fn reserve_enlarges_the_table() {
        let slots = || -> u32 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap().trim().parse().unwrap()
        };
        let wanted = 2 * slots();
        super::reserve(wanted);
        assert!(slots() >= wanted);
        // Beyond the limit it has no effect.
        super::reserve(u32::MAX);
    }
}
