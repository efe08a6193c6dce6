//! Costs in processor time: each test sets one cost, all others are zero.

use ahead_sim::{Counters, Scenario};

const COSTS: [&str; 5] = ["copy_us_per_page", "call_us", "fault_us", "request_us_per_page", "pio_us_per_page"];

/// Reads 16 MiB from front to back, 16 KiB at a time.
fn run(cost: &str, us: f64, machine: &str, workload: &str) -> Counters {
    let costs: String =
        COSTS.iter().map(|name| format!("{name} = {}\n", if *name == cost { us } else { 0.0 })).collect();
    let text = format!(
        "policies = [\"linux-6.12\"]\n[machine]\n{costs}{machine}\n[disk]\nmodel = \"ssd\"\n\
         [[workload]]\npattern = \"sequential\"\nfile_mb = 16\nblock_kb = 16\n{workload}\n"
    );
    let scenario = Scenario::from_toml(&text, ".".as_ref()).unwrap();
    scenario.run(&scenario.policies[0]).unwrap()
}

#[test]
fn reading_costs_by_call_by_page_and_by_request() {
    let pages = 16 * 256;
    for (cost, times) in [
        ("copy_us_per_page", pages),
        ("call_us", pages / 4),
        ("request_us_per_page", pages),
        ("pio_us_per_page", pages),
    ] {
        let counters = run(cost, 1.5, "", "");
        assert_eq!(counters.system_ns, times * 1500, "{cost}");
        assert_eq!(counters.user_ns, 0, "{cost}");
    }
    assert_eq!(run("", 0.0, "", "user_us_per_page = 2.5").user_ns, pages * 2500);
    // A call for a part of a page costs the same part of the page's cost.
    assert_eq!(run("copy_us_per_page", 4.096, "", "call_bytes = 1000").system_ns, 16 << 20);
}

/// Each fault maps the cached pages around the faulting page, so fewer faults occur.
#[test]
fn faults_cost_time_and_map_the_pages_around() {
    let faults = |around: u64| {
        let counters = run("fault_us", 1.0, &format!("fault_around_pages = {around}"), "via = \"mmap\"");
        assert_eq!(counters.accesses(), 4096);
        counters.system_ns / 1000
    };
    assert_eq!(faults(1), 4096);
    assert!((256..320).contains(&faults(16)), "{}", faults(16));
}

/// With programmed input the processor moves the data, so no process runs meanwhile. With DMA the disk moves the data.
#[test]
fn programmed_input_takes_the_processor_from_the_program() {
    let [moved, fetched] = [50.0, 0.0].map(|us| run("pio_us_per_page", us, "", "user_us_per_page = 50"));
    assert_eq!(moved.user_ns, fetched.user_ns);
    assert!(moved.elapsed_ns >= 4096 * 100_000 && fetched.elapsed_ns < 4096 * 60_000);
}
