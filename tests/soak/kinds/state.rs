//! State that ahead reads from its files and from the kernel: undo notes, disks, windows, rules, mount tables.

use super::Kind;
use crate::mutate::{self, Chance};
use ahead_disk::DiskInfo;
use ahead_disk::protocol::{Answer, Ask, Setup, Started, decode, encode};
use ahead_disk::tune::{Identity, Settings, Store, System, Target};
use ahead_model::DeviceNumber;
use ahead_process::undo::Note;
use ahead_sys::mounts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};

/// Changes one of these texts.
fn text_of(seeds: Vec<String>, words: &'static [&'static str]) -> impl Fn(&mut Chance) -> Vec<u8> {
    move |chance| {
        let (seed, other) = (chance.pick(&seeds).clone(), chance.pick(&seeds).clone());
        mutate::text(chance, &seed, &other, words)
    }
}

/// One field per line, since the changes work on lines.
fn pretty(text: &str) -> String {
    serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(text).expect("JSON")).expect("JSON")
}

const PATHS: &[&str] =
    &["/", "", "/../x", "/x\\u0000y", "a\\nb", "/proc/self/fd/0", "remove", "unmount", "set_file", "\\ud800"];

/// Asserts that a value that is read is equal after it is written and read again.
fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let again = serde_json::to_vec(&value).expect("a value that was read can be written");
    assert_eq!(serde_json::from_slice::<T>(&again).expect("a written value can be read"), value);
    Some(value)
}

pub fn undo_notes() -> Kind {
    let rest = [
        r#""action":"set_file","path":"/sys/block/vda/queue/read_ahead_kb","old":"128","new":"0""#,
        r#""action":"unmount","target":"/mnt","mount":{"filesystem":"ext4","source":"/dev/loop0","namespace":7,"numbers":{"id":30,"unique":4294967300}}"#,
        r#""action":"detach_loop","device":"/dev/loop0","backing":"/x.img","sequence_of_disk":3"#,
        r#""action":"end_process","process":{"pid":1,"start_ticks":2}"#,
        r#""action":"remove","path":"/x","file":{"device":1,"inode":2,"born_ns":null}"#,
        r#""action":"remove_tree","path":"/x","directory":null"#,
    ];
    let note = |rest: &str| pretty(&format!(r#"{{"owner":{{"pid":1,"start_ticks":2}},"sequence":3,{rest}}}"#));
    let run = |bytes: &[u8]| {
        // The note is not undone: as root, undo would perform its action.
        let note = round_trip::<Note>(bytes);
        note.is_some_and(|note| !note.action.to_string().is_empty())
    };
    Kind::new("undo-notes", 3, text_of(rest.map(note).to_vec(), PATHS), run)
}

pub fn disks() -> Kind {
    let disk = r#"{"name":"slow","image":"/x.img","model":{"name":"hdd","toml":null},"capacity_bytes":1048576,"device":"/dev/loop0",
        "device_number":[7,0],"mount":"/mnt","filesystem":"ext4","read_only":false,"preload":false,"read_ahead_kb":128,
        "floor":FLOOR,"punctuality":[{"depth":1,"share":1.0,"reads_per_s":100.0,"off_us":[0.1,0.2,0.3]}],"beyond_rig":false,
        "beyond_rig_why":null,"daemon":{"pid":1,"start_ticks":2}}"#;
    let floor = serde_json::to_string(&ahead_disk::Floor::default()).expect("plain values");
    let seed = pretty(&disk.replace("FLOOR", &floor));
    let run = |bytes: &[u8]| {
        let Some(disk) = serde_json::from_slice::<DiskInfo>(bytes).ok() else { return false };
        let _ = (disk.model(), disk.is_alive());
        serde_json::to_vec(&disk).is_ok()
    };
    Kind::new("disks", 2, text_of(vec![seed], PATHS), run)
}

pub fn disk_protocol() -> Kind {
    let lines = [
        r#"{"ask":"stat","reset":true}"#,
        r#"{"ask":"reads"}"#,
        r#"{"ask":"fault","clear":true,"fail":[{"offset_bytes":0,"length_bytes":4096}],"stall_ms":5}"#,
        r#"{"ask":"engage","lead":{"base_ns":1,"per_kib_ns":2,"per_other_ns":3,"others_most":4}}"#,
        r#"{"ask":"end"}"#,
        r#"{"reads":[{"offset_bytes":0,"length_bytes":1,"arrived_ns":2,"takes_ns":3,"late_ns":4}]}"#,
        r#"{"faults":{"fail":[],"stall_ms":0}}"#,
        r#"{"error":"x"}"#,
        r#"{"name":"x","image":"/x","model":{"name":"ssd","toml":null},"capacity_bytes":1048576,"preload":false,"read_only":false}"#,
        r#"{"failed":{"message":"x","unavailable":true}}"#,
    ];
    let run = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let ask = decode::<Ask>(&text);
        if let Ok(ask) = &ask {
            assert_eq!(decode::<Ask>(&encode(ask).expect("plain values")).expect("an encoded line can be read"), *ask);
        }
        if let Ok(Ask::Fault(change)) = &ask {
            let mut faults = ahead_disk::Faults::default();
            faults.change(change.clone());
            faults.fails(ahead_disk::ByteRange { offset_bytes: 4096, length_bytes: u64::MAX });
        }
        let setup = decode::<Setup>(&text);
        if let Ok(setup) = &setup {
            let _ = setup.model.model();
        }
        ask.is_ok() | setup.is_ok() | decode::<Answer>(&text).is_ok() | decode::<Started>(&text).is_ok()
    };
    Kind::new("disk-protocol", 3, text_of(lines.map(pretty).to_vec(), PATHS), run)
}

pub fn mount_tables() -> Kind {
    let table = "24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n\
                 30 24 0:50 / /mnt/x rw,nosuid - fuse.sshfs u@h:/ rw,user_id=0,subtype=x\\040y\n\
                 31 24 0:51 / /mnt/o rw - overlay none rw,lowerdir=/a:/b\\072c,upperdir=/u,workdir=/w\n\
                 32 24 0:52 /sub /mnt/b rw - btrfs /dev/vdb rw,subvol=/sub";
    let run = |bytes: &[u8]| {
        let Ok(mounts) = mounts::parse(bytes) else { return false };
        mounts.iter().for_each(|mount| drop(mount.overlay_layers()));
        true
    };
    Kind::new("mount-tables", 2, text_of(vec![table.to_owned()], &["overlay", "lowerdir+=", "\\134", "\\04"]), run)
}

/// A system in a directory, with one disk.
struct Machine {
    home: tempfile::TempDir,
    store: Store,
    target: Target,
}

/// The file with the disk's saved settings.
const STATE: &str = "var/lib/ahead/tune/ID_SERIAL-x.json";

fn machine() -> Machine {
    let base = Some(Path::new("/dev/shm")).filter(|path| path.is_dir()).unwrap_or(Path::new("/tmp"));
    let home = tempfile::tempdir_in(base).expect("a directory");
    let write = |path: &str, text: &str| {
        let path = home.path().join(path);
        fs::create_dir_all(path.parent().expect("below")).and_then(|()| fs::write(&path, text)).expect("a file");
    };
    write("sys/class/bdi/8:0/read_ahead_kb", "128\n");
    write("sys/dev/block/8:0/dev", "8:0\n");
    write("sys/dev/block/8:0/diskseq", "7\n");
    write("proc/self/mountinfo", "24 1 8:0 / / rw - ext4 /dev/sda rw\n");
    write("proc/sys/kernel/random/boot_id", "this-start\n");
    write("run/udev/data/b8:0", "E:ID_SERIAL=x\n");
    write(STATE, "{}");
    fs::create_dir_all(home.path().join("etc/udev/rules.d")).expect("a directory");
    let system = System { root: home.path().into(), kept: home.path().into() };
    let target = Target {
        number: DeviceNumber::new(8, 0),
        setting: home.path().join("sys/class/bdi/8:0/read_ahead_kb"),
        kind: ahead_disk::tune::Kind::Disk,
        name: "sda".into(),
        directory: None,
        device: None,
        identity: Ok(Identity::Property { name: "ID_SERIAL".into(), value: "x".into() }),
        notes: Vec::new(),
    };
    Machine { store: Store::new(system), home, target }
}

pub fn windows() -> Kind {
    let identities = [
        r#"{"by":"property","name":"ID_SERIAL","value":"x"}"#,
        r#"{"by":"attribute","name":"dm/uuid","value":"LVM-x"}"#,
        r#"{"by":"file_system","uuid":"0-1","on_partition":true}"#,
        r#"{"by":"btrfs","uuid":"0-1","point":"/mnt"}"#,
        r#"{"by":"mount","point":"/mnt/x","source":"s:/x","fs_type":"nfs4"}"#,
        "null",
    ];
    let state = |identity: &str| {
        pretty(&format!(
            r#"{{"name":"sda","identity":{identity},"previous_kb":128,"applied_kb":512,"written_kb":[512],
            "window":{{"boot":"this-start","number":[8,0],"diskseq":7,"setting":"/sys/class/bdi/8:0/read_ahead_kb"}},"directories":["etc/x"]}}"#
        ))
    };
    let machine = machine();
    let run = move |bytes: &[u8]| {
        fs::write(machine.home.path().join(STATE), bytes).expect("a file");
        let _ = machine.store.check(&machine.target);
        let Some(state) = round_trip::<Settings>(bytes) else { return false };
        state.identity.is_none_or(|identity| !identity.to_string().is_empty())
    };
    let words =
        &["../../../etc/passwd", "a\\nExecStart=/x", "property", "mount", "btrfs", "%n", "$(x)", "/mnt/\\u0001"];
    Kind::new("windows", 2, text_of(identities.map(state).to_vec(), words), run)
}

pub fn rules() -> Kind {
    let rule = "# Written by `ahead tune --persist`\nACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{ID_SERIAL}==\"x\", \
                ATTR{queue/read_ahead_kb}=\"512\"\n";
    let unit = "# Written by `ahead tune --persist`\n[Service]\nEnvironment=AHEAD_KB=512\nExecStart=/bin/sh -c x\n";
    let machine = machine();
    let path: PathBuf = machine.store.check(&machine.target).expect("a disk with an identity").rule;
    let run = move |bytes: &[u8]| {
        // Names `home`, so that the closure captures it: its drop removes the directory.
        let Machine { home: _home, store, target } = &machine;
        fs::write(&path, bytes).expect("a file");
        store.check(target).is_ok_and(|checked| checked.rule_kb.is_some())
    };
    Kind::new("rules", 2, text_of(vec![rule.to_owned(), unit.to_owned()], &["512", "99999999999999999999", ""]), run)
}
