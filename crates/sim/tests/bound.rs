//! `oracle` is the bound that others are measured by: none is faster by more than 2 %, whatever the pattern and the disk.

use ahead_sim::Scenario;

/// A pattern's fields, with a file large enough that what happens before the first page comes is little of the whole.
const PATTERNS: [&str; 9] = [
    "pattern = \"sequential\"\nuser_us_per_page = 20",
    "pattern = \"backward\"\nblock_kb = 16",
    "pattern = \"stride\"\nblock_kb = 16\nstride_kb = 64",
    "pattern = \"interleaved-backward\"\nblock_kb = 16",
    "pattern = \"random\"\nblock_kb = 4",
    "pattern = \"random\"\nvia = \"mmap\"",
    "pattern = \"sparse\"\nblock_kb = 16",
    "pattern = \"mixed\"\nblock_kb = 16",
    "pattern = \"sequential\"\nvia = \"mmap\"",
];

fn scenario(disk: &str, pattern: &str) -> Scenario {
    let text = format!(
        "policies = [\"none\", \"fixed(32)\", \"linux-2.4\", \"linux-2.6\", \"advise(64)\", \"true-readahead(64)\", \"wu-adaptive\", \
         \"linux-6.12\", \"linux-6.18\", \"amp\", \"competitive\", \"zfetch\", \"read-stream\", \"ahead\", \"oracle\"]\n\
         [machine]\nmemory_mb = 256\n[disk]\nmodel = \"{disk}\"\n[[workload]]\nfile_mb = 64\n{pattern}\n"
    );
    Scenario::from_toml(&text, ".".as_ref()).unwrap()
}

fn nobody_beats_oracle(disk: &str) {
    let mut beaten = Vec::new();
    for pattern in PATTERNS {
        let scenario = scenario(disk, pattern);
        let time_ns = |name: &str| {
            let choice = scenario.policies.iter().find(|choice| choice.to_string() == name).unwrap();
            scenario.run(choice).unwrap().elapsed_ns
        };
        let bound_ns = time_ns("oracle") as f64;
        for other in &scenario.policies {
            let by = bound_ns / time_ns(&other.to_string()) as f64;
            if by > 1.02 {
                beaten.push(format!("{pattern:?} on {disk}: {other} by {by:.3}"));
            }
        }
    }
    assert!(beaten.is_empty(), "{beaten:#?}");
}

#[test]
fn nobody_beats_oracle_on_hdd() {
    nobody_beats_oracle("hdd");
}

#[test]
fn nobody_beats_oracle_on_ssd() {
    nobody_beats_oracle("ssd");
}

#[test]
fn nobody_beats_oracle_on_nvme() {
    nobody_beats_oracle("nvme");
}

#[test]
fn nobody_beats_oracle_on_emmc() {
    nobody_beats_oracle("emmc");
}

#[test]
fn nobody_beats_oracle_on_cloud() {
    nobody_beats_oracle("cloud");
}
