//! Simulated accesses to pages per second, on one processor: `make bench-sim`.

use ahead_sim::Scenario;
use divan::Bencher;
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

/// Runs a scenario with one policy, and counts pages.
fn bench(bencher: Bencher, text: &str) {
    let scenario = Scenario::from_toml(text, ".".as_ref()).expect("a scenario that is known at compile time");
    let run = || scenario.run(&scenario.policies[0]).expect("a policy that knows no future");
    let accesses = run().accesses();
    bencher.counter(ItemsCount::new(accesses)).bench(run);
}

const POLICIES: [&str; 5] = ["none", "linux-2.6", "linux-6.12", "linux-6.18", "ahead"];
/// Policies that need every call or page, or have short windows.
const OTHERS: [&str; 7] =
    ["advise(64)", "true-readahead(64)", "wu-adaptive", "amp", "competitive", "zfetch", "read-stream"];

/// 4 GiB from front to back, 64 KiB at a time, 1 GiB of memory.
#[divan::bench(args = POLICIES, sample_count = 5)]
fn sequential(bencher: Bencher, policy: &str) {
    bench(bencher, &scan(policy, 64, 4096));
}

/// The same with the policies of the papers and of other systems.
#[divan::bench(args = OTHERS, sample_count = 5)]
fn sequential_by_others(bencher: Bencher, policy: &str) {
    bench(bencher, &scan(policy, 64, 4096));
}

/// The same in calls of one page.
#[divan::bench(args = POLICIES, sample_count = 5)]
fn sequential_by_pages(bencher: Bencher, policy: &str) {
    bench(bencher, &scan(policy, 4, 4096));
}

/// Sixteen readers of 256 MiB each, 64 MiB of memory.
#[divan::bench(args = POLICIES, sample_count = 5)]
fn sixteen_streams_under_pressure(bencher: Bencher, policy: &str) {
    bench(bencher, &sixteen(policy, 512, 64));
}

/// The same with a window of 128 KiB, and in calls of one page.
#[divan::bench(args = POLICIES, sample_count = 5)]
fn sixteen_streams_at_128_kb(bencher: Bencher, policy: &str) {
    bench(bencher, &sixteen(policy, 128, 64));
}

#[divan::bench(args = POLICIES, sample_count = 5)]
fn sixteen_streams_by_pages(bencher: Bencher, policy: &str) {
    bench(bencher, &sixteen(policy, 128, 4));
}

fn sixteen(policy: &str, window_kb: u64, block_kb: u64) -> String {
    format!(
        "policies = [\"{policy}\"]\n[machine]\nmemory_mb = 64\n[disk]\nmodel = \"ssd\"\nread_ahead_kb = {window_kb}\n\
         [[workload]]\npattern = \"sequential\"\nfile_mb = 256\nstreams = 16\nblock_kb = {block_kb}\n"
    )
}

/// Writes 4 GiB in calls of 64 KiB, with writeback at the same time.
#[divan::bench(sample_count = 5)]
fn writing(bencher: Bencher) {
    let text = "policies = [\"linux-6.18\"]\n[machine]\nmemory_mb = 256\n[disk]\nmodel = \"nvme\"\n\
                [[workload]]\npattern = \"write\"\nfile_mb = 4096\n";
    let scenario = Scenario::from_toml(text, ".".as_ref()).expect("a scenario that is known at compile time");
    let run = || scenario.run(&scenario.policies[0]).expect("a policy that knows no future");
    bencher.counter(ItemsCount::new(run().write_bytes / 4096)).bench(run);
}

/// A thirty-second part of a terabyte. The time is linear in the length.
#[divan::bench(sample_count = 1)]
fn a_thirty_second_part_of_a_terabyte(bencher: Bencher) {
    bench(bencher, &scan("linux-6.18", 1024, 32768));
}

fn scan(policy: &str, block_kb: u64, file_mb: u64) -> String {
    format!(
        "policies = [\"{policy}\"]\n[machine]\nmemory_mb = 1024\n[disk]\nmodel = \"nvme\"\n\
         [[workload]]\npattern = \"sequential\"\nfile_mb = {file_mb}\nblock_kb = {block_kb}\n"
    )
}
