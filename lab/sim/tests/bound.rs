//! `oracle` is the bound for the other policies. None is faster by more than 2 %, for every pattern and disk. With many
//! concurrent readers the limit is 5 %.

use ahead_sim::Scenario;

/// The fields of a pattern. The file is large, so that the time before its first page has little weight.
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

/// Many readers and many files. The order of accesses alone does not give the best length of a read for one reader
/// while others wait. On `hdd` a policy that stays longer with each reader reads eight large files 4 % faster. But then
/// slow readers wait longer for their first page.
const MANY: [&str; 8] = [
    "pattern = \"interleaved\"\nfile_mb = 5\nstreams = 40",
    "pattern = \"sequential\"\nfile_mb = 2\nstreams = 40",
    "pattern = \"sequential\"\nfile_mb = 2\nstreams = 8",
    "pattern = \"sequential\"\nfile_mb = 32\nstreams = 8\nblock_kb = 16",
    "pattern = \"sequential\"\nfile_mb = 8\nstreams = 8\nrate_kb_per_s = 1000",
    "pattern = \"sequential\"\nfile_mb = 1\nstreams = 64\nreopens = true",
    "pattern = \"backward\"\nfile_mb = 8\nstreams = 16\nblock_kb = 16",
    "pattern = \"random\"\nfile_mb = 8\nstreams = 8\nblock_kb = 16",
];

fn scenario(disk: &str, workload: &str) -> Scenario {
    let text = format!(
        "policies = [\"none\", \"fixed(32)\", \"fixed(64)\", \"linux-2.4\", \"linux-2.6\", \"advise(64)\", \"true-readahead(64)\", \
         \"wu-adaptive\", \"linux-6.12\", \"linux-6.18\", \"amp\", \"competitive\", \"zfetch\", \"read-stream\", \"ahead\", \"oracle\"]\n\
         [machine]\nmemory_mb = 256\n[disk]\nmodel = \"{disk}\"\n[[workload]]\n{workload}\n"
    );
    Scenario::from_toml(&text, ".".as_ref()).unwrap()
}

/// The policies that are faster than `oracle` by more than this factor.
fn beaten(disk: &str, workload: &str, most: f64) -> Vec<String> {
    let scenario = scenario(disk, workload);
    let run = |choice| scenario.run(choice).unwrap().elapsed_ns as f64;
    let times = scenario.policies.iter().map(|choice| (choice.to_string(), run(choice)));
    let times: Vec<(String, f64)> = times.collect();
    let bound_ns = times.iter().find(|(name, _)| name == "oracle").unwrap().1;
    let faster = times.iter().filter(|(_, time_ns)| bound_ns / time_ns > most);
    faster.map(|(name, time_ns)| format!("{workload:?} on {disk}: {name} by {:.3}", bound_ns / time_ns)).collect()
}

fn no_policy_beats_oracle(disk: &str) {
    let alone = PATTERNS.iter().flat_map(|pattern| beaten(disk, &format!("file_mb = 64\n{pattern}"), 1.02));
    let many = MANY.iter().flat_map(|workload| beaten(disk, workload, 1.05));
    let beaten: Vec<String> = alone.chain(many).collect();
    assert!(beaten.is_empty(), "{beaten:#?}");
}

#[test]
fn no_policy_beats_oracle_on_hdd() {
    no_policy_beats_oracle("hdd");
}

#[test]
fn no_policy_beats_oracle_on_ssd() {
    no_policy_beats_oracle("ssd");
}

#[test]
fn no_policy_beats_oracle_on_nvme() {
    no_policy_beats_oracle("nvme");
}

#[test]
fn no_policy_beats_oracle_on_emmc() {
    no_policy_beats_oracle("emmc");
}

#[test]
fn no_policy_beats_oracle_on_cloud() {
    no_policy_beats_oracle("cloud");
}
