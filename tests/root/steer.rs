//! `ahead steer` beside unmodified programs: windows of single open files, fetches, and that everything is put back.

mod faults;
mod hostile;
pub mod rig;

use ahead_model::random::SplitMix64;
use ahead_observe::StateQuery;
use ahead_process::family::descendants;
use ahead_tests::rig::prelude::*;
use rig::{BACKWARD, Disk, FAULTS, PAGES, SEQUENTIAL, Steering, Victim, backward_sum, is_act, is_lock_free, steered};
use std::io::Read;

#[test]
fn random_faults_get_a_window_of_one_page_which_is_put_back() {
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let Some(disk) = Disk::new(fs_type) else { continue };
        let path = disk.file();
        let Some(mut steering) = Steering::start(&disk.rules(), &[]) else { return };
        let mut victim = Victim::start(FAULTS, &path);
        let pid = victim.pid();
        assert_eq!(victim.window(&path), PAGES);
        victim.go_on();
        let act = steering.wait_for("a window", |entry| is_act(entry, pid, "window", "done"));
        assert_eq!((act["class"].as_str(), act["pages"].as_u64()), (Some("random mmap"), Some(1)), "{fs_type}");
        assert_eq!((act["before_pages"].as_u64(), act["path"].as_str()), (Some(PAGES), path.to_str()));
        assert!(act["latency_us"].as_f64().is_some() && !act["reason"].as_str().unwrap().is_empty());
        assert_eq!((victim.window(&path), disk.kb()), (1, (PAGES * 4).to_string()));
        let (log, summary) = steering.stop();
        assert!(log.iter().any(|entry| is_act(entry, pid, "restore", "done")), "{log:#?}");
        assert_eq!((victim.window(&path), disk.kb()), (PAGES, (PAGES * 4).to_string()));
        assert_eq!((summary["windows_set"].as_u64(), summary["windows_restored"].as_u64()), (Some(1), Some(1)));
        assert!(summary["exposed_us"]["count"].as_u64().unwrap() >= 1, "{summary}");
    }
}

#[test]
fn dry_run_changes_nothing() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.file();
    let Some(mut steering) = Steering::start(&disk.rules(), &["--dry-run"]) else { return };
    let mut victim = Victim::start(FAULTS, &path);
    victim.go_on();
    let pid = victim.pid();
    steering.wait_for("a planned window", |entry| is_act(entry, pid, "window", "planned") && entry["dry_run"] == true);
    assert_eq!(victim.window(&path), PAGES);
    let (_, summary) = steering.stop();
    assert!(summary["planned"].as_u64().unwrap() > 0 && summary["windows_set"] == 0 && summary["hold_us"].is_null());
}

#[test]
fn top_shows_the_counts_of_a_running_steer() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.file();
    let Some(mut steering) = Steering::start(&disk.rules(), &["--dry-run"]) else { return };
    let mut victim = Victim::start(FAULTS, &path);
    victim.go_on();
    let pid = victim.pid();
    let row = || {
        let top = program(built("ahead-steer")).args(["top", "--once", "--json", "--pid", &pid.to_string(), "--path"]);
        top.arg(&path).json()[0].clone()
    };
    steering.wait_for("a planned window", |entry| is_act(entry, pid, "window", "planned"));
    let seen = row();
    assert!(seen["faults"].as_u64().unwrap() >= 4 && seen["issued_bytes"].as_u64() > Some(4 * 4096), "{seen:#}");
    assert!(seen["hits"].is_null() && seen["pattern"] == "random mmap", "{seen:#}");
    steering.stop();
    assert!(row()["faults"].is_null());
}

#[test]
fn program_with_its_own_advice_and_excluded_program_are_left_alone() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.file();
    let advised = format!("os.posix_fadvise(f,0,0,os.POSIX_FADV_SEQUENTIAL)\n{FAULTS}");
    let Some(steering) = Steering::start(&disk.rules(), &[]) else { return };
    let mut victim = Victim::start(&advised, &path);
    victim.go_on();
    assert_eq!(victim.window(&path), 2 * PAGES);
    let (log, _) = steering.stop();
    let acts = |log: &[Value], pid| log.iter().filter(|entry| entry["pid"] == pid && entry["act"] == "window").count();
    assert_eq!((acts(&log, victim.pid()), victim.window(&path)), (0, 2 * PAGES));
    // Its mapping would keep the pages cached.
    drop(victim);
    let exclude = format!("[[exclude]]\npath = '{}'\n{}", path.display(), disk.rules());
    let Some(mut steering) = Steering::start(&exclude, &[]) else { return };
    let mut victim = Victim::start(FAULTS, &path);
    victim.go_on();
    let pid = victim.pid();
    // `python3` may be a script: the shell that becomes Python is refused, too, for another reason.
    let is_excluded = |entry: &Value| entry["reason"].as_str().unwrap_or_default().contains("line 1");
    steering.wait_for("a refusal", |entry| is_act(entry, pid, "none", "refused") && is_excluded(entry));
    let (log, _) = steering.stop();
    assert_eq!((acts(&log, pid), victim.window(&path)), (0, PAGES));
}

#[test]
fn rules_are_read_again_and_a_mistake_keeps_those_before() {
    let Some((_disk, path, mut steering)) = steered(Disk::file) else { return };
    let mut victim = Victim::start(FAULTS, &path);
    victim.go_on();
    let pid = victim.pid();
    steering.wait_for("a window", |entry| is_act(entry, pid, "window", "done"));
    fs::write(steering.rules.path(), "[limit]\n").unwrap();
    steering.signal("HUP");
    let failed = steering.wait_for("the mistake", |entry| entry["act"] == "rules" && entry["outcome"] == "failed");
    assert!(failed["reason"].as_str().unwrap().contains("line 1, column 2"), "{failed}");
    assert_eq!(victim.window(&path), 1);
    fs::write(steering.rules.path(), "[[exclude]]\ncommand = 'python*'\n").unwrap();
    steering.signal("HUP");
    steering.wait_for("the rules", |entry| entry["act"] == "rules" && entry["outcome"] == "done");
    assert_eq!(victim.window(&path), PAGES);
    steering.stop();
}

/// On a disk with an access time of 1 ms a window of 128 KiB makes a sequential reader wait.
#[test]
fn readers_of_a_slow_disk_get_larger_windows_and_fetched_pages_and_the_same_data() {
    let Some(mut disks) = Disks::alone() else { return };
    let (_, mount) = disks.mounted("steer", &["--size", "512M", "--model", "cloud", "--fs", "ext4"]);
    let path = mount.join("data");
    let content: Vec<u8> = (0..48u32 << 18).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(&path, &content).unwrap();
    let rules = format!("[[include]]\ncommand = 'python3*'\nmount = '{}'\n", mount.display());
    let Some(mut steering) = Steering::start(&rules, &[]) else { return };
    let mut victim = Victim::start(SEQUENTIAL, &path);
    let sequential = victim.pid();
    victim.go_on();
    let grown = |entry: &Value| is_act(entry, sequential, "window", "done") && entry["pages"].as_u64() > Some(32);
    steering.wait_for("a larger window", grown);
    drop(victim);
    let mut victim = Victim::start(BACKWARD, &path);
    let backward = victim.pid();
    assert_eq!(victim.go_on(), backward_sum(&content));
    steering.wait_for("a fetch", |entry| is_act(entry, backward, "fetch", "done") && entry["class"] == "backward");
    drop(victim);
    // Our own descriptor of the file keeps the mount busy for a second at most.
    wait_until("an unmount", || ahead_sys::mounting::unmount(&mount).is_ok());
    let (_, summary) = steering.stop();
    assert!(summary["fetched_bytes"].as_u64().unwrap() > 1 << 20, "{summary}");
}

/// Regression of a prototype: another open file behind the same descriptor number got the window.
#[test]
fn replaced_descriptors_never_get_the_window_of_another_file() {
    let Some(disk) = Disk::new("ext4") else { return };
    let (path, other) = (disk.file(), disk.mounted.file("other", 1 << 20));
    let script = format!(
        "kept=os.open(sys.argv[1],os.O_RDONLY); others=[os.open('{}',os.O_RDONLY) for _ in range(8)]
m=mmap.mmap(f,0,prot=mmap.PROT_READ)
step()
for turn in range(3000):
    f2=os.open(sys.argv[1],os.O_RDONLY); n=mmap.mmap(f2,0,prot=mmap.PROT_READ)
    for page in random.Random(turn).sample(range(pages//64),6): n[page*64*4096]
    os.dup2(others[turn%8],f2); os.close(f2); n.close()
    if turn%50==0: os.posix_fadvise(kept,0,0,os.POSIX_FADV_DONTNEED)
step()",
        other.display()
    );
    let Some(steering) = Steering::start(&disk.rules(), &[]) else { return };
    let mut victim = Victim::start(&script, &path);
    victim.go_on();
    let inode = rustix::fs::stat(&other).unwrap().st_ino;
    let states = StateQuery::new().unwrap().of_process(victim.pid()).unwrap();
    let others: Vec<_> = states.iter().filter(|state| state.inode_number == inode).collect();
    assert!(others.len() == 8 && others.iter().all(|state| state.readahead.window_pages == PAGES), "{others:?}");
    assert_eq!(victim.window(&path), PAGES);
    let (log, summary) = steering.stop();
    eprintln!("{} entries, {}", log.len(), summary["refusals"]);
    assert_eq!(disk.kb(), (PAGES * 4).to_string());
}

/// Kills of `killed_steering_leaves_nothing`. `AHEAD_STEER_KILLS` is another number, for a campaign; `AHEAD_TEST_SEED` repeats its moments.
const KILLS: u64 = 6;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}: not a number")))
}

#[test]
fn killed_steering_leaves_nothing() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.quick_file();
    // Each turn is another open file, and so another act.
    let script = "step()
while True:
    f2=os.open(sys.argv[1],os.O_RDONLY); m=mmap.mmap(f2,0,prot=mmap.PROT_READ)
    for page in random.sample(range(pages//64),8): m[page*64*4096]
    m.close(); os.close(f2); os.posix_fadvise(f,0,0,os.POSIX_FADV_DONTNEED)";
    let mut victim = Victim::start(script, &path);
    victim.release();
    let (kills, seed) = (number("AHEAD_STEER_KILLS").unwrap_or(KILLS), number("AHEAD_TEST_SEED").unwrap_or(1));
    let (mut random, began, mut acts) = (SplitMix64::new(seed), Instant::now(), 0);
    for kill in 1..=kills {
        let Some(mut steering) = Steering::start(&disk.rules(), &[]) else { return };
        let pid = steering.pid();
        for _ in 0..=random.below(6) {
            steering.log.clear();
            steering.wait_for("a window", |entry| is_act(entry, victim.pid(), "window", "done"));
            acts += 1;
        }
        let family = descendants(pid).unwrap();
        assert!(family.len() >= 2, "the guardian and the forker of helpers: {family:?}");
        // Not a synchronisation: the moment is the random input, at most that of some acts.
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        steering.signal("KILL");
        drop(steering);
        wait_until("the guardian", || notes_of(pid).is_empty());
        assert_eq!(disk.kb(), (PAGES * 4).to_string(), "kill {kill}, AHEAD_TEST_SEED={seed}");
        assert!(is_lock_free(), "kill {kill}");
        wait_until("the helper processes", || !family.iter().any(|process| process.is_alive()));
        if kill % 50 == 0 {
            eprintln!("{kill} kills of {kills}, {acts} acts seen, {:.0} s", began.elapsed().as_secs_f64());
        }
    }
}

/// Regression: with umask 077 other users could not read the file.
#[test]
fn metrics_are_published_in_a_file_and_on_a_socket() {
    let Some(disk) = Disk::new("ext4") else { return };
    let path = disk.file();
    let home = tempfile::tempdir().unwrap();
    let (file, socket) = (home.path().join("ahead.prom"), home.path().join("socket"));
    let place = format!("unix:{}", socket.display());
    for place in [file.to_str().unwrap(), &place] {
        let Some(mut steering) = Steering::start(&disk.rules(), &["--metrics", place]) else { return };
        let mut victim = Victim::start(FAULTS, &path);
        victim.go_on();
        let pid = victim.pid();
        steering.wait_for("a window", |entry| is_act(entry, pid, "window", "done"));
        let text = || match place.starts_with("unix:") {
            false => fs::read_to_string(&file).unwrap_or_default(),
            true => {
                let mut text = String::new();
                std::os::unix::net::UnixStream::connect(&socket).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        };
        wait_until("the metrics", || text().contains("ahead_steer_acts_total{act=\"window\",outcome=\"done\"} 1\n"));
        assert!(text().contains("ahead_steer_steered_windows 1"), "{}", text());
        if place == file.to_str().unwrap() {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o644);
        }
        steering.stop();
        assert!(!socket.exists());
    }
    assert!(fs::read_to_string(&file).unwrap().contains("ahead_steer_steered_windows 0"));
}

#[test]
fn second_steering_is_refused() {
    let Some(steering) = Steering::start("", &["--dry-run"]) else { return };
    let second = program(built("ahead-steer")).args(["steer", "--dry-run", "--duration", "1s"]);
    second.fails(1).says("another ahead steer runs");
    steering.stop();
}
