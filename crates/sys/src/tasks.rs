//! The number of threads and processes that may still be started.

use crate::{cgroup, machine};
use rustix::process::{Resource, getrlimit};
use std::fs;

/// Threads and processes that may still be started within the user's limit (`ulimit -u`, setrlimit(2)) and the limits of the
/// control groups. A lower bound: all tasks of the machine are subtracted from the user's limit, because counting only the user's
/// tasks requires reading every process. `u64::MAX`: no limit.
pub fn room() -> u64 {
    // The user limit does not apply to root; control groups do.
    let of_user = getrlimit(Resource::Nproc).current.filter(|_| !machine::is_root());
    let of_user = of_user.map(|limit| limit.saturating_sub(of_machine().unwrap_or(limit)));
    let of_groups = cgroup::own("pids").into_iter().filter_map(|(_, group)| {
        let limit = cgroup::number(&group, "pids.max")?;
        Some(limit.saturating_sub(cgroup::number(&group, "pids.current")?))
    });
    of_groups.chain(of_user).min().unwrap_or(u64::MAX)
}

/// The tasks of the machine: in `0.20 0.18 0.12 1/80 11206` the number after the slash (proc_loadavg(5)).
fn of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_tasks_and_room_for_one_more() {
        assert!(of_machine().unwrap() > 1);
        // Each test runs in its own thread.
        assert!(room() > 0);
    }
}
