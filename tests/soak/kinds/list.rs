//! Lists of files, packs of ureadahead, rules of steering and records of relocations.

use super::Kind;
use crate::mutate::{self, Chance};
use ahead_files::lists::{List, PackHeader, Syntax, WHOLE};
use ahead_model::RangeSet;
use ahead_plan::relocation::{Direction, Move, PackedFile, Record, Run};
use ahead_profile::{Extent, File, Profile};
use ahead_steer::Rules;

/// The size of a listed file, bytes: larger than most ranges.
const FILE_BYTES: u64 = 1 << 40;

const NUL: Syntax = Syntax { nul: true, paths_only: false };

/// Plain lists with line ends and NUL bytes, and templates.
pub fn lists() -> Kind {
    let lines = "# comment\n/usr/lib/libc.so.6\n/usr/lib/libc.so.6:0-64K\n/srv/a:1-2:0-\n/srv/a/:1M-\nrelative:8KiB-1G\n/x:8-8\n:0-4K\n";
    let patterns = "/usr/lib/**/*.so:0-4K\n/usr/share/[a-z]*/?x\n/etc/\\*\n/srv/[!a]:1-\n";
    let seeds = [lines.to_owned(), lines.replace('\n', "\0"), patterns.to_owned()];
    let words =
        ["/", "//", "\0", "\n", "**", "[", "\\", "../..", ":0-", ":18446744073709551615-", ":1T-2T", "\u{fffd}", "#"];
    let make = move |chance: &mut Chance| {
        let (seed, other) = (chance.pick(&seeds).clone(), chance.pick(&seeds).clone());
        mutate::text(chance, &seed, &other, &words)
    };
    Kind::new("lists", 4, make, run_list)
}

fn run_list(bytes: &[u8]) -> bool {
    let template = ahead_files::lists::parse_template(bytes).is_ok();
    let others = [Syntax::default(), Syntax { nul: false, paths_only: true }, Syntax { nul: true, paths_only: true }];
    let parsed = others.map(|syntax| ahead_files::lists::parse(bytes, syntax));
    parsed.iter().flatten().chain(ahead_files::lists::parse(bytes, NUL).iter()).for_each(assert_written_as_read);
    template || parsed.iter().any(Result::is_ok)
}

/// A list that is written from a profile of a list means the same files and ranges.
fn assert_written_as_read(list: &List) {
    let file = |listed: &ahead_files::lists::Listed| {
        let extent = |range: std::ops::Range<u64>| Extent {
            offset_bytes: range.start,
            length_bytes: range.end - range.start,
            runs: 1,
            ..Extent::default()
        };
        let extents = listed.everything().within(&(0..FILE_BYTES)).map(extent).collect();
        File { path: listed.path.clone(), size_bytes: FILE_BYTES, extents, ..File::default() }
    };
    // A profile has paths of files: none ends with a slash.
    let files: Vec<File> = list.files().iter().filter(|listed| !listed.path.ends_with(b"/")).map(file).collect();
    let files: Vec<File> = files.into_iter().filter(|file| !file.extents.is_empty()).collect();
    let whole = |file: &File| -> RangeSet {
        let used = file.extents.iter().map(Extent::range);
        if file.used_bytes() == FILE_BYTES { [WHOLE].into_iter().collect() } else { used.collect() }
    };
    let expected: Vec<(Vec<u8>, RangeSet)> = files.iter().map(|file| (file.path.clone(), whole(file))).collect();
    let profile = Profile { files, ..Profile::default() };
    let written = ahead_files::lists::write(&profile, true, |_| false).expect("entries with NUL bytes have any name");
    let again = ahead_files::lists::parse(&written, NUL).expect("a list that was written");
    let found: Vec<(Vec<u8>, RangeSet)> =
        again.files().iter().map(|listed| (listed.path.clone(), listed.everything())).collect();
    assert_eq!(found, expected);
}

pub fn ureadahead_packs() -> Kind {
    let file = |path: &str, extents: &[(u64, u64)]| File {
        path: path.into(),
        size_bytes: 1 << 20,
        extents: extents
            .iter()
            .map(|(offset_bytes, length_bytes)| Extent {
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
                physical_bytes: Some(offset_bytes * 3),
                runs: 1,
                ..Extent::default()
            })
            .collect(),
        ..File::default()
    };
    let files = vec![file("/usr/bin/x", &[(0, 4096), (8192, 4096)]), file("/lib/y", &[(4096, 8192)]), file("/z", &[])];
    let profile = Profile { files, ..Profile::default() };
    let seeds = [false, true]
        .map(|rotational| ahead_files::lists::encode_pack(&profile, PackHeader { created_unix_s: 1, rotational }).0);
    let make = move |chance: &mut Chance| {
        let (mut pack, other) = (chance.pick(&seeds).clone(), chance.pick(&seeds).clone());
        mutate::bytes(chance, &mut pack, &other);
        pack
    };
    let run = |bytes: &[u8]| {
        let Ok(list) = ahead_files::lists::decode_pack(bytes) else { return false };
        for listed in list.files() {
            assert!(listed.path.starts_with(b"/") && listed.ranged.is_empty());
            assert!(listed.wanted.span().is_none_or(|span| span.end <= i64::MAX as u64));
        }
        true
    };
    Kind::new("ureadahead-packs", 2, make, run)
}

/// Rules of `ahead steer`.
pub fn steer_rules() -> Kind {
    let all = "[limits]\nmax_window = \"16M\"\nmin_window = \"4K\"\nmemory = 0.25\nmax_acts_per_second = 2000\nmax_files = 4096\nfetch = true\n\
               [[include]]\nexe = \"/usr/bin/*\"\nuser = \"postgres\"\n[[exclude]]\npath = \"/srv/**/[a-z]?\"\ncgroup = \"/system.slice/*\"\n";
    let seeds = [all.to_owned(), "[[exclude]]\nmount = \"/mnt\"\ncomm = \"x\"\n".to_owned()];
    let words =
        ["\"**\"", "[", "\"\\u0000\"", "[[include]]", "1e999", "nan", "-1", "path", "exe", "user = 0", "\"\"", "true"];
    let make = move |chance: &mut Chance| {
        let (seed, other) = (chance.pick(&seeds).clone(), chance.pick(&seeds).clone());
        mutate::text(chance, &seed, &other, &words)
    };
    let run = |bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        match Rules::parse(text) {
            Ok(rules) => {
                let limits = rules.limits;
                assert!(
                    limits.min_window_bytes <= limits.max_window_bytes && (0.0..=1.0).contains(&limits.memory_share)
                );
                true
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                false
            }
        }
    };
    Kind::new("steer-rules", 3, make, run)
}

/// Records of relocations.
pub fn pack_records() -> Kind {
    let one = |file, offset_bytes, donor_bytes| Move {
        file,
        offset_bytes,
        donor_bytes,
        length_bytes: 8192,
        old_physical_bytes: 1 << 20,
        new_physical_bytes: 1 << 30,
    };
    let mut record = Record::new(b"/home/x/p%\xff.ahead".to_vec(), 1_700_000_000, 4096, 12);
    let packed = |file: usize| PackedFile {
        path: format!("/srv/{file}\n").into(),
        inode: 7 + file as u64,
        generation: 9,
        size_bytes: 1 << 20,
        mtime_ns: -5,
    };
    record.add(vec![one(0, 0, 0), one(3, 4096, 8192), one(0, 16_384, 16_384)], packed);
    let value: serde_json::Value = serde_json::from_str(&record.encode()).expect("JSON");
    let seed = serde_json::to_string_pretty(&value).expect("JSON");
    let words = ["\"%\"", "\"%0\"", "9223372036854775807", "18446744073709551615", "-1", "null", "[]", "{}", "\"/\""];
    let make = move |chance: &mut Chance| mutate::text(chance, &seed, &seed.clone(), &words);
    Kind::new("pack-records", 3, make, run_record)
}

fn run_record(bytes: &[u8]) -> bool {
    let Ok(record) = Record::decode(bytes) else { return false };
    assert_eq!(Record::decode(record.encode().as_bytes()).expect("a record that was written"), record);
    assert!(record.bytes() <= i64::MAX as u64, "no byte of the donor is there twice");
    for one in &record.moves {
        assert!(one.file < record.files.len());
        let file = [Run { offset_bytes: 0, physical_bytes: 1 << 20, length_bytes: 1 << 30 }];
        let donor = [Run { offset_bytes: 0, physical_bytes: 1 << 30, length_bytes: 1 << 30 }];
        for direction in [Direction::Pack, Direction::Undo] {
            let pending = ahead_plan::relocation::pending(one, direction, &file, &donor);
            assert!(pending.iter().all(|range| range.end <= one.length_bytes));
        }
    }
    true
}
