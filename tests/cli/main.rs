//! The command line without privilege: one file for each command or area.

mod apps;
mod bench;
mod boot;
mod building;
mod cached;
mod circles;
mod cold;
mod compare;
mod crates;
mod description;
mod device;
mod disk;
mod documents;
mod embedded;
mod fetch;
mod generate;
mod help;
mod installing;
mod list;
mod lists;
mod names;
mod papers;
mod probe;
mod record;
mod show;
mod sim;
mod sizes;
mod starting;
mod steer;
mod top;
mod tune;

/// Waits until a process has used this much processor time, in hundredths of a second.
pub fn until_it_computes(pid: u32, ticks: u64) {
    // utime is the twelfth field after the name in parentheses.
    let used = || ahead_tests::rig::process::stat_field(pid, 11)?.parse().ok();
    while used().is_some_and(|used: u64| used < ticks) {
        std::thread::yield_now();
    }
}
