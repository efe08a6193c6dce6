//! Effects of a file's layout on its readers.

use ahead_sim::{Counters, Finished, Scenario};

fn run(policy: &str, disk: &str, workload: &str) -> (Counters, Vec<Finished>) {
    let text =
        format!("policies = [\"{policy}\"]\n[disk]\n{disk}\n[[workload]]\npattern = \"sequential\"\n{workload}\n");
    let scenario = Scenario::from_toml(&text, ".".as_ref()).unwrap();
    scenario.run_with_calls(&scenario.policies[0]).unwrap()
}

/// Pelouin (2009), section 3.4: half blocks without read-ahead. The read of block 12 also fetches the indirect block.
#[test]
fn thirteenth_block_needs_one_more_request() {
    let (counters, calls) = run("none", "model = \"ssd\"\nlayout = \"ext2\"", "file_mb = 1\ncall_bytes = 2048");
    assert_eq!(calls.len(), 512);
    // One request for each page, one for the inode, one for the indirect block.
    assert_eq!((counters.issued_pages, counters.metadata_pages, counters.device.requests), (256, 2, 258));
    let took_ns = |offset_bytes: u64| {
        let call = calls.iter().find(|call| call.offset_bytes == offset_bytes).unwrap();
        call.ended_ns - call.began_ns
    };
    for block in 1..256 {
        let [begins, goes_on] = [0, 2048].map(|within| took_ns(block * 4096 + within));
        assert!(goes_on * 10 < begins, "block {block}: {begins} ns, then {goes_on} ns");
        let dips = begins * 2 > took_ns(4096) * 3;
        assert_eq!(dips, block == 12, "block {block}: {begins} ns");
    }
}

/// A window of 32 pages from the file's start is split: 13 blocks (with the indirect block), and after their arrival
/// the other 20.
#[test]
fn window_is_cut_at_an_absent_pointer_block() {
    let disk = "model = \"hdd\"\nread_ahead_kb = 128\nmax_request_kb = 1024\n";
    let text = "file_mb = 1\nblock_kb = 128\ncall_bytes = 131072";
    let (plain, plain_calls) = run("linux-6.12", disk, text);
    let (cut, calls) = run("linux-6.12", &format!("{disk}layout = \"ext2\""), text);
    assert_eq!(plain.issued_pages, cut.issued_pages);
    // One request for the inode, and one for the second part of the first window.
    assert_eq!(cut.device.requests, plain.device.requests + 2);
    assert_eq!(cut.device.bytes, plain.device.bytes + 2 * 4096);
    assert!(cut.metadata_wait_ns > 0 && cut.metadata_wait_ns < cut.wait_ns);
    assert!(calls[0].ended_ns - calls[0].began_ns > plain_calls[0].ended_ns - plain_calls[0].began_ns);
}

/// A file with double-indirect blocks across ten groups: every pointer block is read once.
#[test]
fn each_pointer_block_is_read_once() {
    let (counters, _) = run("linux-2.6.23", "model = \"nvme\"\nlayout = \"ext2\"", "file_mb = 1280\npasses = 1");
    let pages = 1280 * 256;
    let indirect = 1 + 1 + (pages - 12_u64 - 1024).div_ceil(1024);
    assert_eq!(counters.metadata_pages, 1 + indirect);
    assert_eq!(counters.issued_pages, pages);
    assert_eq!(counters.device.bytes, (pages + 1 + indirect) * 4096);
}

/// Policies that request pages while no process waits (on arrivals, on waits) also pass pointer blocks.
#[test]
fn every_policy_passes_pointer_blocks() {
    for policy in ahead_policy::CATALOGUE.iter().filter(|policy| !policy.needs_profile()) {
        let name = if policy.arguments.is_empty() { policy.name.to_owned() } else { format!("{}(16)", policy.name) };
        let (counters, _) = run(&name, "model = \"cloud\"\nlayout = \"ext2\"\nnr_requests = 2", "file_mb = 16");
        assert_eq!(counters.used_pages, 4096, "{name}");
        assert_eq!(counters.metadata_pages, 1 + 1 + 1 + 3, "{name}");
    }
}

/// Linux counts several consecutive reads of one page as one use. A scan in half pages does not evict the pages that
/// are read repeatedly.
#[test]
fn reads_within_a_page_are_one_use() {
    let misses = |call_bytes: u64| {
        let text = format!(
            "policies = [\"none\"]\n[machine]\nmemory_mb = 2\n[disk]\nmodel = \"ssd\"\n\
             [[workload]]\npattern = \"sequential\"\nfile_mb = 1\nblock_kb = 4\npasses = 400\nuser_us_per_page = 50\n\
             [[workload]]\npattern = \"sequential\"\nfile_mb = 32\nblock_kb = 4\ncall_bytes = {call_bytes}\n"
        );
        let scenario = Scenario::from_toml(&text, ".".as_ref()).unwrap();
        scenario.run(&scenario.policies[0]).unwrap().misses
    };
    let (whole, halves) = (misses(4096), misses(2048));
    assert!(whole < (8192 + 256) * 11 / 10 && halves.abs_diff(whole) * 50 < whole, "{whole} {halves}");
}
