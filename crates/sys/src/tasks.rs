//! How many more threads and processes may be started here.

use crate::{cgroup, machine};
use rustix::process::{Resource, getrlimit};
use std::fs;

/// Threads and processes that may still be started, as far as that is known: within the user's limit (`ulimit -u`, setrlimit(2))
/// and the limits of the control groups. A lower bound: of the user's limit all tasks of the machine are taken off, whoever's
/// they are, because counting the user's own means to look at each process. `u64::MAX`: nothing limits.
pub fn room() -> u64 {
    // Root's processes are not limited by their number, but its control groups are.
    let of_user = getrlimit(Resource::Nproc).current.filter(|_| !machine::is_root());
    let of_user = of_user.map(|limit| limit.saturating_sub(of_machine().unwrap_or(limit)));
    let of_groups = cgroup::own("pids").into_iter().filter_map(|(_, group)| {
        let limit = cgroup::number(&group, "pids.max")?;
        Some(limit.saturating_sub(cgroup::number(&group, "pids.current")?))
    });
    of_groups.chain(of_user).min().unwrap_or(u64::MAX)
}

/// The tasks of the machine: `0.20 0.18 0.12 1/80 11206` has them after the slash (proc_loadavg(5)).
fn of_machine() -> Option<u64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_runs_some_tasks_and_has_room_for_one_more() {
        assert!(of_machine().unwrap() > 1);
        // The tests run in threads of their own.
        assert!(room() > 0);
    }
}
