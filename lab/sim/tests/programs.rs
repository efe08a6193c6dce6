//! Custom programs run on a scenario's machine, which returns the times of single calls.

use ahead_policy::{FileId, OpenId, named};
use ahead_sim::{Op, Program, Scenario};

const SCENARIO: &str = r#"
policies = ["none"]
[machine]
call_us = 0
copy_us_per_page = 0
request_us_per_page = 0
[disk]
model = "wu"
[[workload]]
pattern = "sequential"
file_mb = 1
"#;

#[test]
fn custom_programs_run_on_the_machine_of_a_scenario() {
    let scenario = Scenario::from_toml(SCENARIO, ".".as_ref()).unwrap();
    let (open, file) = (OpenId(0), FileId(0));
    // Two reads of the same page, then one of a distant page.
    let read = |offset_bytes| Op::Read { open, file, offset_bytes, length_bytes: 512 };
    let ops = Box::new([read(1 << 20), read((1 << 20) + 512), read(8 << 20)].into_iter());
    let program = Program { ops, user_per_page_ns: 0.0 };
    let machine = scenario.machine_for(&named("none").unwrap(), &[4096], vec![program]).unwrap();
    let (counters, calls) = machine.run_with_calls();
    let took: Vec<u64> = calls.iter().map(|call| call.ended_ns - call.began_ns).collect();
    // 8 ms of access and 39 us of transfer; 0 for the cached page.
    assert_eq!(took, [8_039_063, 0, 8_039_063]);
    assert_eq!(calls[2].offset_bytes, 8 << 20);
    assert_eq!(calls[2].ended_ns, counters.elapsed_ns);
}
