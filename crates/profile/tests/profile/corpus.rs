//! The corpus of the fuzz target (`fuzz/corpus/profile_decode`): generated here, stored in the repository, replayed here on
//! stable Rust. After a change of the format: `AHEAD_WRITE_CORPUS=1 cargo test -p ahead-profile corpus`.
//!
//! `good-…` must decode, `bad-…` must be refused, and none may break a rule of `exercise`.

use crate::exercise;
use ahead_profile::{
    ContentCheck, Extent, File, Lookup, Metadata, Milestone, MilestoneKind, Precision, Profile, Recording, Thread,
    Timeline, TimelineSource, Wakeup, WarmUse, encode,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

type Corpus = BTreeMap<String, Vec<u8>>;

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "profile_decode"].iter().collect()
}

fn extent(offset_bytes: u64, length_bytes: u64, first_use_us: u64) -> Extent {
    let physical_bytes = Some(1 << 30 | offset_bytes);
    Extent { offset_bytes, length_bytes, first_use_us, runs: 1, physical_bytes, warm_use: None }
}

/// A small profile with every kind of entry.
fn full() -> Profile {
    Profile {
        recording: Recording {
            command: vec![b"python3".to_vec(), b"-c".to_vec(), b"import json".to_vec()],
            directory: b"/home/user".to_vec(),
            created_unix_s: 1_785_000_000,
            kernel: "6.18.2".into(),
            machine: "x86_64, 2 CPUs, 24 GiB".into(),
            source: "tp_btf mm_filemap_get_pages+mm_filemap_fault".into(),
            precision: Precision::Precise,
            cold: true,
            metadata_seen: true,
            lost_events: 3,
            runs: 2,
            duration_us: 69_000,
            read_ahead_kb: 0,
            cpu_us: 41_000,
            root: Vec::new(),
            devices: Vec::new(),
        },
        files: vec![File {
            path: b"/usr/bin/python3.11".to_vec(),
            seen_path: Some(b"/mnt/root/usr/bin/python3.11".to_vec()),
            fs_path: b"/usr/bin/python3.11".to_vec(),
            fs_type: "ext4".into(),
            device: 254 << 32,
            inode: 1234,
            size_bytes: 6_831_736,
            mtime_ns: -1,
            deleted: false,
            in_place: false,
            extents: vec![extent(4096, 8192, 90), Extent { physical_bytes: None, ..extent(0, 4096, 100) }],
            content: None,
        }],
        metadata: vec![Metadata {
            device_path: b"/dev/vda".to_vec(),
            mount_point: b"/".to_vec(),
            fs_type: "ext4".into(),
            device: 254 << 32,
            extents: vec![extent(1 << 20, 4096, 10)],
        }],
        lookups: vec![Lookup {
            path: b"/etc"[..].into(),
            inode: 2,
            device: 0,
            listed: true,
            first_use_us: 5,
            warm_use_us: None,
        }],
        milestones: vec![Milestone {
            time_us: 0,
            kind: MilestoneKind::Exec,
            path: b"/usr/bin/python3.11".to_vec(),
            warm_us: None,
        }],
        timeline: None,
    }
}

fn least() -> Profile {
    Profile { recording: Recording { runs: 1, ..Recording::default() }, ..Profile::default() }
}

fn with_root(root: &str) -> Profile {
    let recording = Recording { runs: 1, root: root.into(), ..Recording::default() };
    Profile { recording, ..Profile::default() }
}

fn with_content() -> Profile {
    let mut profile = full();
    profile.files[0].content = Some(Box::new(ContentCheck { layout: 7, pieces: vec![u32::MAX] }));
    profile
}

fn with_timeline() -> Profile {
    let mut profile = full();
    profile.files[0].extents[1].warm_use = Some(WarmUse { time_us: 40, thread: 1, cpu_us: 30 });
    profile.lookups[0].warm_use_us = Some(3);
    profile.milestones[0].warm_us = Some(0);
    let thread = |parent, cpu_us| Thread { parent, parent_cpu_us: 2, cpu_us };
    profile.timeline = Some(Box::new(Timeline {
        source: TimelineSource::ProcessorClocks,
        warm_us: 77,
        reading_ns: 0,
        threads: vec![thread(None, 60), thread(Some(0), 50)],
        wakeups: vec![Wakeup { by: 1, by_cpu_us: 50, woken: 0, woken_cpu_us: 55 }],
    }));
    profile
}

/// The bytes of `full` with the first occurrence of `from` replaced, and a correct checksum.
fn replaced(from: &[u8], to: &[u8]) -> Vec<u8> {
    let bytes = encode(&full()).unwrap();
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the profile contains these bytes");
    exercise::with_header(&[&bytes[28..at], to, &bytes[at + from.len()..]].concat())
}

fn made() -> Corpus {
    let mut corpus = Corpus::new();
    let mut add = |name: &str, bytes: Vec<u8>| assert!(corpus.insert(name.into(), bytes).is_none());
    let bytes = encode(&full()).unwrap();
    add("good-full", bytes.clone());
    add("good-least", encode(&least()).unwrap());
    add("good-content", encode(&with_content()).unwrap());
    // The last byte of the digests is missing: no multiple of 4.
    let bytes_of_content = encode(&with_content()).unwrap();
    let at = bytes_of_content.windows(5).position(|window| window == b"\x48\x07\0\0\0").unwrap();
    let cut = [&bytes_of_content[28..at], b"\x47", &bytes_of_content[at + 1..at + 8], &bytes_of_content[at + 9..]];
    add("bad-content-length", exercise::with_header(&cut.concat()));
    let bytes_of_timeline = encode(&with_timeline()).unwrap();
    add("good-timeline", bytes_of_timeline.clone());
    // A thread that started itself, a wake-up of a thread that does not exist, a use by one, times without a thread.
    let changed = |from: &[u8], to: &[u8]| {
        let at =
            bytes_of_timeline.windows(from.len()).position(|window| window == from).expect("these bytes are there");
        exercise::with_header(&[&bytes_of_timeline[28..at], to, &bytes_of_timeline[at + from.len()..]].concat())
    };
    add("bad-timeline-parent", changed(b"\x83\x00\x02\x18\x32", b"\x83\x01\x02\x18\x32"));
    add("bad-timeline-wakeup", changed(b"\x84\x01\x18\x32\x00\x18\x37", b"\x84\x01\x18\x32\x02\x18\x37"));
    add("bad-timeline-use", changed(b"\x18\x28\x01\x18\x1e", b"\x18\x28\x02\x18\x1e"));
    add("bad-timeline-missing", changed(b"\x68timeline\xa4", b"\x68timelinE\xa4"));
    add("good-root", encode(&with_root("/mnt/image")).unwrap());
    // A newer minor version: one more key in the outer map (a5 becomes a6), with nested values to skip.
    let newer = [b"\xa6", &bytes[29..], b"\x66future\xa1\x01\x82\xf5\xc1\xfb\0\0\0\0\0\0\0\0"].concat();
    add("good-newer-minor", exercise::with_header(&newer));
    add("bad-empty", Vec::new());
    add("bad-text", b"#!/bin/sh\necho no profile\n".to_vec());
    for (name, length) in [("magic", 5), ("header", 20), ("body", bytes.len() - 7), ("nothing-left", 28)] {
        add(&format!("bad-truncated-{name}"), bytes[..length].to_vec());
    }
    for (name, at) in
        [("magic", 1), ("major", 8), ("minor", 10), ("flags", 13), ("length", 17), ("crc", 25), ("body", 90)]
    {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        add(&format!("bad-flipped-{name}"), flipped);
    }
    add("bad-trailing", [bytes.as_slice(), b"\0"].concat());
    add_hostile(&mut add);
    corpus
}

/// Well-formed outside, invalid inside, with a correct checksum.
fn add_hostile(add: &mut impl FnMut(&str, Vec<u8>)) {
    let body = |body: &[u8]| exercise::with_header(body);
    let length = 4096u64.to_be_bytes();
    let extent_from = b"\x85\x19\x10\x00\x19\x20\x00\x18\x5a\x01";
    let number = |value: u64| [b"\x1b".as_slice(), &value.to_be_bytes()].concat();
    let extent_to =
        |offset: u64, length: u64| [b"\x85", &number(offset)[..], &number(length), b"\x18\x5a\x01"].concat();
    add("bad-offset-2-63", replaced(extent_from, &extent_to(1 << 63, 4096)));
    add("bad-offset-overflow", replaced(extent_from, &extent_to(u64::MAX, u64::MAX)));
    add("bad-length-0", replaced(extent_from, &extent_to(4096, 0)));
    add("bad-overlap", replaced(extent_from, &extent_to(0, 8192)));
    add("bad-runs-0", replaced(b"\x64runs\x02", b"\x64runs\x00"));
    add("bad-runs-too-many", replaced(extent_from, b"\x85\x19\x10\x00\x19\x20\x00\x18\x5a\x03"));
    add("bad-path-upwards", replaced(b"\x53/usr/bin/python3.11", b"\x53/usr/../etc/shadow1"));
    add("bad-path-relative", replaced(b"\x53/usr/bin/python3.11", b"\x53usr//bin/python3.11"));
    add("bad-path-nul", replaced(b"\x53/usr/bin/python3.11", b"\x53/usr/bin/python\0.11"));
    add("bad-path-long", replaced(b"\x53/usr/bin/python3.11", &[b"\x59\x10\x01", &[b'/'; 4097][..]].concat()));
    let (rooted, key) = (encode(&with_root("/mnt/image")).unwrap(), b"\x64root\x4a/mnt/image");
    let at = rooted.windows(key.len()).position(|window| window == key).expect("the key is there");
    add("bad-root-relative", body(&[&rooted[28..at], b"\x64root\x4a.mnt/image", &rooted[at + key.len()..]].concat()));
    add("bad-text-not-utf8", replaced(b"\x666.18.2", b"\x666.18\xff2"));
    add("bad-key-twice", replaced(b"\x67lookups", b"\x65files\x80\x67lookups"));
    add("bad-key-missing", replaced(b"\x67lookups", b"\x67lookupS"));
    add("bad-milestone-kind", replaced(b"\x6amilestones\x81\x83\x00\x00", b"\x6amilestones\x81\x83\x00\x09"));
    add("bad-no-cbor", body(b"\xfc\xfd\xfe"));
    add("bad-empty-map", body(b"\xa0"));
    add("bad-endless-map", body(b"\xbf\xff"));
    add("bad-deep", body(&[b"\xa1\x61x".as_slice(), &[0x81; 5000]].concat()));
    add("bad-files-million", body(b"\xa1\x65files\x9a\x00\x10\x00\x00"));
    add("bad-files-2-64", body(&[b"\xa1\x65files\x9b".as_slice(), &[0xff; 8]].concat()));
    add("bad-skip-2-64", body(&[b"\xa1\x61x\xbb".as_slice(), &[0xff; 8]].concat()));
    add("bad-bytes-2-64", body(&[b"\xa1\x61x\x5b".as_slice(), &[0xff; 8]].concat()));
    add("bad-length-short", body(&[b"\xa1\x61x\x5b".as_slice(), &length].concat()));
}

#[test]
fn stored_corpus_is_the_generated_one() {
    let made = made();
    if std::env::var_os("AHEAD_WRITE_CORPUS").is_some() {
        for (name, bytes) in &made {
            fs::write(directory().join(name), bytes).unwrap();
        }
    }
    for (name, bytes) in &made {
        let kept = fs::read(directory().join(name)).unwrap_or_default();
        assert!(kept == *bytes, "{name} differs: see the head of this file for how to write it again");
    }
}

#[test]
fn corpus_is_replayed() {
    let mut replayed = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let decoded = exercise::bytes(&fs::read(entry.path()).unwrap());
        // Inputs found by the fuzzer have no prefix, and no expected result.
        assert!(!name.starts_with("good-") || decoded, "{name} was refused");
        assert!(!name.starts_with("bad-") || !decoded, "{name} was accepted");
        replayed += 1;
    }
    assert!(replayed >= made().len(), "only {replayed} files in the corpus");
}

/// The messages that users see, in one place.
#[test]
fn error_messages_are_clear() {
    let message = |name: &str| ahead_profile::decode(&made()[name]).unwrap_err().to_string();
    for (name, expected) in [
        ("bad-text", "not an ahead profile (byte 0: the signature is missing); name a file that `ahead record` wrote"),
        ("bad-truncated-header", "truncated at byte 20 of 28; record again"),
        ("bad-flipped-flags", "damaged header (byte 12: unknown flags); record again"),
        ("bad-offset-2-63", "invalid, so not written by ahead: files[0].extents[0]: it ends beyond 2^63 bytes"),
        ("bad-length-0", "invalid, so not written by ahead: files[0].extents[0]: its length is 0"),
        ("bad-overlap", "invalid, so not written by ahead: files[0].extents[1]: it overlaps with entry 0"),
        ("bad-path-upwards", "invalid, so not written by ahead: files[0].path: the path contains \"..\""),
        ("bad-path-nul", "invalid, so not written by ahead: files[0].path: the path contains a NUL byte"),
    ] {
        assert_eq!(message(name), expected, "{name}");
    }
    assert!(
        message("bad-flipped-major").starts_with("format version 5.0 is newer than this ahead can read (1.x); upgrade")
    );
    assert!(message("bad-path-long").ends_with("(files[0].path): 4097 bytes, more than the 4096 allowed"));
    assert!(message("bad-milestone-kind").contains("(milestones[0].kind)"));
}
