//! Emulated disks: data survives a detach, times match the model, counters match the reads, faults are injected on request,
//! and a killed process leaves nothing.

mod detaching;
mod hostile;

use ahead_disk::{Client, DiskInfo, FaultChange, Punctuality, Stat};
use ahead_disk_server::accuracy;
use ahead_model::random::SplitMix64;
use ahead_sys::direct::AlignedBuffer;
use ahead_sys::{block, daemon, loopdev, mounting};
use ahead_tests::rig::emulated::kill_daemon;
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::wait::LONGEST;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;

/// `ahead disk` with these arguments. Each command takes seconds at most.
fn disk_command(arguments: &[&str]) -> Program {
    ahead(["disk"]).args(arguments).limit(2 * LONGEST)
}

/// Attaches an image again.
fn attach(image: &Path, name: &str, more: &[&str]) -> DiskInfo {
    disk_command(&["attach", image.to_str().unwrap(), "--name", name, "--model", "ssd"]).args(more).ok();
    ahead_disk::find(name).unwrap()
}

fn detach(disk: &DiskInfo) {
    disk_command(&["detach", &disk.name]).ok();
}

/// Asserts that nothing of this disk exists any more: no mount, loop device, file or note.
fn assert_gone(disk: &DiskInfo) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&format!("/{} ", disk.name)), "{mounts}");
    if let Some(mount) = &disk.mount {
        assert!(!mounting::is_mount_point(mount).unwrap());
    }
    let attached = loopdev::status(&disk.device).unwrap();
    assert!(attached.is_none_or(|status| !status.backing.to_string_lossy().contains(&disk.name)));
    assert_eq!(names_with("/run/ahead/disk", &disk.name), Vec::<String>::new());
    assert_eq!(ahead_process::undo::notes().unwrap().iter().filter(|(_, note)| note.owner == disk.daemon).count(), 0);
    assert!(!disk.daemon.is_alive());
}

/// Bytes that depend on their position.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..length).map(|_| random.number() as u8).collect()
}

#[test]
fn written_data_is_read_after_a_new_attach() {
    let Some(mut home) = Disks::new() else { return };
    let mount = home.mount_point();
    for (filesystem, size) in [("ext4", "256M"), ("ext2", "64M"), ("ext3", "64M"), ("xfs", "320M"), ("btrfs", "160M")] {
        let create = ["--size", size, "--model", "ssd", "--fs", filesystem, "--mount", &mount];
        let disk = home.create(filesystem, &create);
        assert_eq!(disk.filesystem.as_deref(), Some(filesystem));
        let small: Vec<Vec<u8>> = (0..50).map(|i| pattern(i, 100 + i as usize * 97)).collect();
        let large = pattern(99, 20 << 20);
        fs::write(Path::new(&mount).join("large"), &large).unwrap();
        for (i, content) in small.iter().enumerate() {
            fs::write(Path::new(&mount).join(format!("small{i}")), content).unwrap();
        }
        detach(&disk);
        assert_gone(&disk);
        for preload in [None, Some("--preload")] {
            let name = home.name(filesystem);
            let more: Vec<&str> = ["--mount", &mount].into_iter().chain(preload).collect();
            let again = attach(&disk.image, &name, &more);
            assert!(fs::read(Path::new(&mount).join("large")).unwrap() == large, "{filesystem} {preload:?}");
            for (i, content) in small.iter().enumerate() {
                assert_eq!(&fs::read(Path::new(&mount).join(format!("small{i}"))).unwrap(), content, "{filesystem}");
            }
            detach(&again);
        }
        fs::remove_file(&disk.image).unwrap();
    }
}

#[test]
fn the_device_has_the_properties_of_its_model() {
    let Some(mut home) = Disks::new() else { return };
    let disk = home.create("looks", &["--size", "64M", "--model", "hdd", "--fs", "none", "--read-ahead-kb", "256"]);
    let model = disk.model().unwrap();
    let queue = |setting| block::disk_setting(disk.device_number, setting).unwrap();
    assert_eq!((queue("rotational").as_str(), queue("read_ahead_kb").as_str()), ("1", "256"));
    assert_eq!(queue("max_sectors_kb").parse::<u64>().unwrap() << 10, model.max_request_bytes().min(1 << 20));
    assert_eq!(queue("scheduler"), model.scheduler());
    assert_eq!(queue("nr_requests"), model.nr_requests().to_string());
    assert_eq!(block::size_bytes(disk.device_number).unwrap(), 64 << 20);
    assert_eq!(ahead_disk::find_by_device(disk.device_number), Some(disk.clone()));
    assert_eq!(ahead_disk::find(disk.device.to_str().unwrap()).unwrap(), disk);
    assert!(loopdev::status(&disk.device).unwrap().unwrap().direct_io);
    let listed = disk_command(&["list", "--json"]).json();
    let own = listed.as_array().unwrap().iter().find(|row| row["name"] == *disk.name).unwrap();
    assert_eq!((&own["model"], &own["alive"]), (&"hdd".into(), &true.into()));
    detach(&disk);
    assert_gone(&disk);
}

/// The best of these rounds counts: other programs can only make times worse.
const ROUNDS: u64 = 8;

/// Processor time since boot, seconds, of all programs except this one and the disk's daemon, and time taken by the
/// hypervisor.
fn others_seconds(disk: &DiskInfo) -> f64 {
    /// `USER_HZ`, the unit of /proc on every machine.
    const TICKS_PER_S: f64 = 100.0;
    let fields = |path: &str, first: usize, count: usize| -> f64 {
        let text = fs::read_to_string(path).unwrap();
        // The program's name in parentheses may contain spaces.
        let rest = text.rsplit_once(')').map_or(text.as_str(), |(_, rest)| rest);
        rest.split_ascii_whitespace().skip(first).take(count).map(|field| field.parse::<f64>().unwrap()).sum()
    };
    let all = fields("/proc/stat", 1, 3) + fields("/proc/stat", 6, 3);
    (all - fields("/proc/self/stat", 11, 2) - fields(&format!("/proc/{}/stat", disk.daemon.pid), 11, 2)) / TICKS_PER_S
}

/// The best of several rounds of timed reads, and whether other programs left the processors idle during them.
fn best_round(disk: &DiskInfo, reads: u64, depth: usize) -> (Punctuality, bool) {
    /// Maximum share of one processor for other programs in a valid round: each wait for a processor takes
    /// milliseconds.
    const DISTURBED: f64 = 0.03;
    /// Upper bound for the kernel threads' time per read, seconds: their work is not a disturbance.
    const KERNEL_S: f64 = 10e-6;
    let client = Client::new(disk);
    let mut best = Punctuality::default();
    let (others, began) = (others_seconds(disk), Instant::now());
    for round in 0..ROUNDS {
        let this = accuracy::measure(&disk.device, &client, disk.capacity_bytes, depth, reads, round).unwrap();
        assert_eq!(client.stat().unwrap().requests, reads);
        if this.share > best.share {
            best = this;
        }
        if best.holds() {
            break;
        }
    }
    let expected = began.elapsed().as_secs_f64() * DISTURBED + (ROUNDS * reads) as f64 * KERNEL_S;
    let calm = others_seconds(disk) - others <= expected;
    (best, calm)
}

/// Maximum deviation of a read from the model, microseconds: the promise of `disk create` (docs/reference/json.md).
const TOLERANCE_US: f64 = 60.0;

#[test]
fn served_times_are_the_model_s() {
    let Some(mut home) = Disks::alone() else { return };
    // Other programs should run as little as possible.
    let _ = daemon::set_nice();
    for (model, reads) in [("hdd", 32), ("ssd", 1000), ("cloud", 300), ("emmc", 500)] {
        let disk = home.create(model, &["--size", "1G", "--model", model, "--fs", "none"]);
        for depth in accuracy::depths(&disk.model().unwrap()) {
            let (best, calm) = best_round(&disk, reads, depth);
            eprintln!("{model} at depth {depth}: {:.1} % punctual, off by {:.1?} µs", best.share * 100.0, best.off_us);
            match &disk.beyond_rig_why {
                _ if best.holds() => {}
                Some(why) => eprintln!("skipped: the disk reports that the model is too fast for this machine: {why}"),
                None if !calm => eprintln!("skipped: other programs used the processors"),
                // The reader saw too few reads in time. Its wake-up time depends on the machine, and differs by 1 % of
                // reads between two minutes. The disk's answer times and the median do not vary like that.
                None => {
                    let stat = Client::new(&disk).stat().unwrap();
                    let is_right = stat.lateness_p99_us <= TOLERANCE_US && best.off_us[1].abs() <= TOLERANCE_US;
                    assert!(is_right, "{model} at depth {depth}: {best:?} {stat:?}");
                }
            }
        }
        detach(&disk);
        fs::remove_file(&disk.image).unwrap();
    }
}

/// Regression: the next disk took a loop device before the last disk had restored its queue. The last disk's notes stayed,
/// and its settings counted as the machine's.
#[test]
fn disks_created_and_detached_in_parallel_leave_no_notes() {
    let Some(mut home) = Disks::new() else { return };
    let options = ["--size", "16M", "--model", "ssd", "--fs", "none"];
    let disks: Vec<DiskInfo> = ["one", "two"].iter().map(|name| home.create(name, &options)).collect();
    let come_and_go = |disk: &DiskInfo| {
        let mut now = disk.clone();
        for _ in 0..4 {
            detach(&now);
            assert_gone(&now);
            now = attach(&disk.image, &disk.name, &[]);
        }
    };
    std::thread::scope(|scope| {
        for disk in &disks {
            scope.spawn(|| come_and_go(disk));
        }
    });
}

#[test]
fn the_counters_match_the_reads() {
    let Some(mut home) = Disks::new() else { return };
    let disk = home.create("counts", &["--size", "64M", "--model", "hdd", "--fs", "none"]);
    let client = Client::new(&disk);
    let file = File::options().read(true).write(true).custom_flags(block::O_DIRECT).open(&disk.device).unwrap();
    let mut buffer = AlignedBuffer::new(256 << 10);
    client.reset().unwrap();
    for i in 0..10 {
        file.read_exact_at(buffer.bytes(), i * (5 << 20)).unwrap();
    }
    file.write_all_at(&buffer.bytes()[..8192], 1 << 20).unwrap();
    let stat = stat_json(&disk);
    assert_eq!((stat.requests, stat.bytes, stat.writes, stat.write_bytes), (10, 10 * (256 << 10), 1, 8192));
    assert!(stat.seeks >= 9 && stat.failed == 0, "{stat:?}");
    let busy_ns = busy_ns(&client.reads().unwrap());
    assert!(stat.busy_us.abs_diff(busy_ns / 1000) <= 10, "{stat:?} {busy_ns}");
    disk_command(&["stat", &disk.name, "--reset"]).ok();
    assert_eq!((stat_json(&disk).requests, stat_json(&disk).busy_us), (0, 0));
}

/// The time during which at least one of these reads was active, by the model. The disk sends an answer early, by the
/// time of its delivery to the program. So the next read may arrive before the model has ended the last one.
/// (Regression: the sum of their times was one or two microseconds too long for each.)
fn busy_ns(reads: &[ahead_disk::Read]) -> u64 {
    let mut until_ns = 0;
    let add = |sum: u64, read: &ahead_disk::Read| {
        let end_ns = read.arrived_ns + read.takes_ns;
        let more_ns = end_ns.saturating_sub(read.arrived_ns.max(until_ns));
        until_ns = until_ns.max(end_ns);
        sum + more_ns
    };
    reads.iter().fold(0, add)
}

fn stat_json(disk: &DiskInfo) -> Stat {
    let value = disk_command(&["stat", &disk.name, "--json"]).json();
    for key in ["name", "model", "beyond_rig", "requests", "bytes", "seeks", "busy_us", "lateness_p99_us"] {
        assert!(!value[key].is_null(), "{key}");
    }
    serde_json::from_value(value).unwrap()
}

#[test]
fn faults_are_set_and_cleared_on_a_running_disk() {
    let Some(mut home) = Disks::new() else { return };
    let disk = home.create("faults", &["--size", "64M", "--model", "nvme", "--fs", "none", "--fail", "1M+64K"]);
    let file = File::options().read(true).custom_flags(block::O_DIRECT).open(&disk.device).unwrap();
    let mut buffer = AlignedBuffer::new(4096);
    let mut read = |offset| file.read_exact_at(buffer.bytes(), offset);
    const EIO: i32 = 5;
    assert_eq!(read(1 << 20).unwrap_err().raw_os_error(), Some(EIO));
    assert_eq!(read((1 << 20) + (60 << 10)).unwrap_err().raw_os_error(), Some(EIO));
    read((1 << 20) + (64 << 10)).unwrap();
    disk_command(&["fault", &disk.name, "--clear", "--stall", "80ms"]).ok();
    let start = Instant::now();
    read(1 << 20).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(79));
    disk_command(&["fault", &disk.name, "--fail", "64M+4K"]).fails(1).says("do not lie on the disk");
    let faults = Client::new(&disk).fault(FaultChange { clear: true, ..FaultChange::default() }).unwrap();
    assert_eq!(faults.stall_ms, 0);
    read(2 << 20).unwrap();
    assert_eq!(stat_json(&disk).failed, 2);
}

/// A separate mount namespace, which keeps its mounts when the test unmounts its mounts.
fn elsewhere() -> Running {
    let words = ["-m", "--propagation", "private", "sh", "-c", "echo ready; read end"];
    let mut program = program("unshare").args(words).open_input().start();
    assert_eq!(program.line(), "ready");
    program
}

/// Regression: the error was that of a write, and the exit status did not report a missing feature (77).
#[test]
fn a_disk_is_not_supported_where_run_is_read_only() {
    // A mount namespace holds copies of other tests' mounts.
    let Some(mut home) = Disks::alone() else { return };
    let (name, image) = (home.name("readonly"), home.path("readonly.img"));
    let existing = home.path("existing.img");
    File::create(&existing).unwrap().set_len(16 << 20).unwrap();
    let say = |arguments: &[&str]| {
        let command = disk_command(arguments).args(["--name", &name, "--model", "ssd"]);
        let command = command.apart(r#"mount --bind /run /run && mount -o remount,bind,ro /run && exec "$@""#);
        command.fails(77).says("not supported here: /run/ahead/").in_one_line();
    };
    say(&["create", image.to_str().unwrap(), "--size", "16M", "--fs", "none"]);
    say(&["attach", existing.to_str().unwrap()]);
    assert!(!image.exists() && ahead_disk::find(&name).is_err());
}

#[test]
fn restore_removes_the_remains_of_a_killed_daemon() {
    let Some(mut home) = Disks::alone() else { return };
    let mount = home.mount_point();
    let disk = home.create("killed", &["--size", "64M", "--model", "hdd", "--mount", &mount]);
    fs::write(Path::new(&mount).join("file"), pattern(1, 1 << 20)).unwrap();
    let open = File::open(Path::new(&mount).join("file")).unwrap();
    ahead_sys::evict::file(&open).unwrap();
    kill_daemon(&disk);
    // The mount still exists, and returns errors instead of data.
    assert!(open.read_at(&mut [0; 4096], 512 << 10).is_err());
    assert!(!ahead_disk::find(&disk.name).unwrap().is_alive());
    drop(open);
    ahead(["restore"]).ok();
    assert_gone(&disk);
    assert!(disk.image.exists());
}

/// Regression: the daemon undid only its own changes. The log, noted by the starter, stayed, and the name remained in use.
#[test]
fn daemon_without_its_killed_starter_leaves_nothing() {
    let Some(mut home) = Disks::new() else { return };
    let image = home.path("x.img");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let setup = |name: &str| {
        let (model, image) = (serde_json::json!({"name": "ssd", "toml": null}), image.to_str().unwrap());
        let setup = serde_json::json!({
            "name": name, "image": image, "model": model, "capacity_bytes": 16 << 20, "preload": false, "read_only": false,
        });
        format!("{setup}\n")
    };
    ahead_process::undo::home::make_directory("testing", Path::new("/run/ahead/disk")).unwrap();
    // Before the daemon gets its first message, before it can answer, and after its answer.
    for moment in 0..3 {
        let name = home.name("orphan");
        let log = PathBuf::from(format!("/run/ahead/disk/{name}.log"));
        let (mut starter, its) = UnixStream::pair().unwrap();
        let mut child = std::process::Command::new(built("ahead"))
            .args(["disk", "serve"])
            .stdin(File::options().read(true).write(true).open(&image).unwrap())
            .stdout(OwnedFd::from(its))
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let own = ahead_process::undo::ProcessId::of(child.id()).unwrap().unwrap();
        ahead_process::undo::note_for(own, ahead_process::undo::Action::remove(&log)).unwrap().leave();
        if moment > 0 {
            starter.write_all(setup(&name).as_bytes()).unwrap();
        }
        if moment > 1 {
            let mut line = String::new();
            BufReader::new(&starter).read_line(&mut line).unwrap();
            assert_eq!(line, "\"ready\"\n");
        }
        drop(starter);
        assert_eq!(child.wait().unwrap().code(), Some(1), "{moment}");
        // The last step of the daemon's helper.
        wait_until("the last step", || ahead_process::undo::notes().unwrap().iter().all(|(_, note)| note.owner != own));
        assert!(!log.exists(), "{moment}");
        assert!(!Path::new(&format!("/run/ahead/disk/{name}")).exists(), "{moment}");
    }
}

#[test]
fn a_killed_create_can_be_undone() {
    let Some(mut home) = Disks::alone() else { return };
    let mount = home.mount_point();
    // A kill at a random moment: restore must remove all changes made by then.
    for (signal, after_s) in [("KILL", "0.005"), ("KILL", "0.06"), ("KILL", "0.15"), ("INT", "0.06"), ("INT", "0.15")] {
        let name = home.name("half");
        let image = home.path(&format!("{name}.img"));
        let create = ["create", image.to_str().unwrap(), "--name", &name, "--size", "1G", "--model", "hdd"];
        let create = disk_command(&create).args(["--mount", &mount]);
        if create.behind(["timeout", "--foreground", "-s", signal, after_s]).start().status().success() {
            detach(&ahead_disk::find(&name).unwrap());
            fs::remove_file(&image).unwrap();
        }
        // The abandoned daemon ends without a request, even if it was killed before its first note. The notes name its
        // remaining changes, which other processes undo.
        wait_until("the daemon's end", || crate::crash::daemons(&name).next().is_none());
        ahead(["restore"]).ok();
        assert!(!image.exists(), "{signal} after {after_s} s");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&name) && !mounting::is_mount_point(Path::new(&mount)).unwrap());
    }
}

#[test]
fn invalid_arguments_are_refused_and_leave_nothing() {
    let Some(mut home) = Disks::new() else { return };
    let mount = home.mount_point();
    let disk = home.create("taken", &["--size", "16M", "--model", "ssd", "--fs", "none"]);
    let (image, other) = (disk.image.to_str().unwrap().to_owned(), home.path("other.img"));
    let other = other.to_str().unwrap();
    let directory = home.path("").to_str().unwrap().to_owned();
    let refused_as = |status: i32, arguments: &[&str], says: &str| {
        disk_command(arguments).fails(status).says(says).in_one_line();
        assert!(!Path::new(other).exists(), "{arguments:?}");
    };
    let refused = |arguments: &[&str], says: &str| refused_as(1, arguments, says);
    let size = ["--size", "16M", "--model", "ssd"];
    refused(&[&["create", &image, "--name", "fresh"], &size[..]].concat(), "exists already");
    refused(&[&["create", other, "--name", &disk.name], &size[..]].concat(), "named");
    refused(&[&["create", other, "--name", "a/b"], &size[..]].concat(), "is not a valid disk name");
    refused_as(2, &[&["create", other, "--fs", "xfs"], &size[..]].concat(), "at least 300 MiB");
    refused(&[&["create", other, "--mount", "/no/such/place"], &size[..]].concat(), "mkdir -p");
    refused(&[&["create", other, "--mount", &directory], &size[..]].concat(), "not empty");
    refused_as(2, &["create", other, "--size", "16M", "--model", "tape"], "roudier-8) nor a TOML file");
    refused(&["create", "/no/such/place/x.img", "--size", "16M", "--model", "ssd"], "No such file");
    refused(&["attach", &image, "--name", "again", "--model", "ssd"], "already attached");
    refused(&["attach", "/dev/null", "--model", "ssd"], "not a regular file");
    let empty = home.path("empty.img");
    File::create(&empty).unwrap().set_len(16 << 20).unwrap();
    let mounting = ["attach", empty.to_str().unwrap(), "--model", "ssd", "--mount", &mount];
    refused(&mounting, "leave out --mount");
    refused(&["stat", "nobody"], "no such emulated disk");
    assert!(ahead_disk::find("empty").is_err());
    detach(&disk);
}

#[test]
fn a_full_disk_below_is_reported() {
    let Some(mut home) = Disks::new() else { return };
    let below = home.path("below");
    let Some(_small) = ahead_tests::rig::mounted::mount("tmpfs", &below, "tmpfs", "size=256k") else { return };
    let (name, image) = (home.name("full"), below.join("x.img"));
    let create =
        ["create", image.to_str().unwrap(), "--name", &name, "--size", "512M", "--model", "ssd", "--fs", "ext4"];
    disk_command(&create).fails(1).says("No space left").in_one_line();
    assert!(!image.exists());
}
