//! Traces of decisions (`ahead sim trace`): compared with the policies.

use super::{Kind, files_of};
use crate::mutate::{self, Chance};
use ahead_policy::traces::{Header, Reader, Record, Writer};
use ahead_sim::conform::conform;
use miniz_oxide::deflate::compress_to_vec;
use serde_json::Value;

/// Records of a golden trace in one input: a case should take a millisecond.
const PIECE: usize = 120;
/// Pieces of each golden trace.
const PIECES: usize = 8;

pub fn kind() -> Kind {
    let seeds: Vec<Vec<Record>> = files_of("lab/sim/traces").iter().flat_map(|bytes| pieces(bytes)).collect();
    Kind::new("traces", 6, move |chance| make(chance, &seeds), run)
}

/// Parts of a trace, from its beginning: files are numbered in their order of appearance.
fn pieces(bytes: &[u8]) -> Vec<Vec<Record>> {
    let mut reader = Reader::new(bytes).expect("a golden trace");
    let records: Vec<Record> =
        std::iter::from_fn(|| reader.next_record().expect("a golden trace")).take(PIECE * PIECES).collect();
    let seen: Vec<Record> =
        records.iter().filter(|record| matches!(record.event, ahead_policy::traces::Event::File(_))).cloned().collect();
    let of = |chunk: &[Record]| seen.iter().chain(chunk.iter().filter(|r| !seen.contains(r))).cloned().collect();
    records.chunks(PIECE).map(of).collect()
}

fn make(chance: &mut Chance, seeds: &[Vec<Record>]) -> Vec<u8> {
    let kernel = *chance.pick(&["6.12.1", "6.18.44-amd64", "7.2.0", "6.18"]);
    let header =
        Header { kernel: kernel.into(), machine: "x86_64".into(), page_bytes: 4096, command: vec!["true".into()] };
    let (mut records, other) = (chance.pick(seeds).clone(), chance.pick(seeds));
    for _ in 0..chance.few() {
        change(chance, &mut records, other);
    }
    let mut writer = Writer::new(Vec::new(), &header).expect("memory");
    records.iter().for_each(|record| writer.add(record).expect("memory"));
    let mut bytes = writer.finish(u64::from(chance.one_in(50))).expect("memory").1;
    match chance.below(8) {
        0 => mutate::bytes(chance, &mut bytes, &[]),
        1 => bytes = with_other_blocks(chance, &bytes),
        _ => {}
    }
    bytes
}

fn change(chance: &mut Chance, records: &mut Vec<Record>, other: &[Record]) {
    let (at, second) = (chance.below(records.len()), chance.below(records.len()));
    match chance.below(8) {
        0 => drop(records.remove(at)),
        1 => {
            let record = records[at].clone();
            let times = if chance.one_in(8) { chance.below(400) } else { 1 };
            records.splice(second..second, std::iter::repeat_n(record, times));
        }
        2 => records.swap(at, second),
        3 => {
            let from = chance.below(other.len());
            let piece = other[from..].iter().take(chance.below(40)).cloned();
            records.splice(at..at, piece.collect::<Vec<_>>());
        }
        _ => {
            let mut value = serde_json::to_value(&records[at]).expect("plain values");
            change_numbers(chance, &mut value);
            // A number out of range makes the record invalid.
            if let Ok(changed) = serde_json::from_value(value) {
                records[at] = changed;
            }
        }
    }
    if records.is_empty() {
        records.extend_from_slice(other);
    }
}

/// Changes each number with probability 1/3.
fn change_numbers(chance: &mut Chance, value: &mut Value) {
    match value {
        Value::Number(_) if chance.one_in(3) => *value = chance.number().into(),
        Value::Bool(_) if chance.one_in(3) => *value = chance.one_in(2).into(),
        Value::Array(values) => values.iter_mut().for_each(|value| change_numbers(chance, value)),
        Value::Object(fields) => fields.values_mut().for_each(|value| change_numbers(chance, value)),
        _ => {}
    }
}

/// Changes the content of a block, and writes it with a correct length and checksum.
fn with_other_blocks(chance: &mut Chance, bytes: &[u8]) -> Vec<u8> {
    let mut changed = bytes[..12].to_vec();
    let mut at = 12;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        if length == 0 {
            changed.extend([0; 4]);
            at += 4;
            continue;
        }
        let Some(block) = bytes.get(at + 8..at + 8 + length) else { break };
        let mut block = block.to_vec();
        if chance.one_in(2) {
            if chance.one_in(4) {
                mutate::bytes(chance, &mut block, &[]);
            } else if let Ok(mut plain) = miniz_oxide::inflate::decompress_to_vec(&block) {
                mutate::bytes(chance, &mut plain, &[]);
                block = compress_to_vec(&plain, 3);
            }
        }
        changed.extend((block.len() as u32).to_le_bytes());
        changed.extend(crc32fast::hash(&block).to_le_bytes());
        changed.extend(block);
        at += 8 + length;
    }
    changed
}

fn run(bytes: &[u8]) -> bool {
    let own = conform(bytes, None);
    if let Err(error) = &own {
        let line = error.to_string();
        assert!(!line.is_empty(), "an empty error message");
    }
    let other = conform(bytes, Some("linux-7.2"));
    own.is_ok() || other.is_ok()
}
