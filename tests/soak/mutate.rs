//! Pseudo-random choices from a seed, and random changes of bytes and text.

use ahead_model::random::SplitMix64;

/// Numbers that parsers often handle wrongly.
pub const NUMBERS: [u64; 16] = [
    0,
    1,
    7,
    63,
    255,
    4095,
    4096,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 51,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// The same choices from the same seed, on every machine.
#[derive(Clone, Debug)]
pub struct Chance(SplitMix64);

impl Chance {
    /// The choices of one case. They do not depend on earlier cases.
    pub fn of_case(seed: u64, case: u64) -> Chance {
        let mut chance = Chance(SplitMix64::new(seed ^ case.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        chance.next();
        chance
    }

    pub fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % (end.max(1) as u64)) as usize
    }

    /// True with probability 1/`of`.
    pub fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A small number, usually of changes.
    pub fn few(&mut self) -> usize {
        [1, 1, 1, 2, 4, 8][self.below(6)]
    }

    /// A small number, one of [`NUMBERS`], a neighbour of one of them, or any number.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.next() % 70,
            1 => *self.pick(&NUMBERS),
            2 => self.pick(&NUMBERS).wrapping_add(self.next() % 5).wrapping_sub(2),
            _ => self.next() >> self.below(64),
        }
    }
}

/// Changes some bytes: bits, bytes, numbers, lengths; removes or doubles pieces, or takes them from `other`.
pub fn bytes(chance: &mut Chance, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..chance.few() {
        let at = chance.below(bytes.len());
        match chance.below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << chance.below(8),
            1 if !bytes.is_empty() => bytes[at] = chance.next() as u8,
            2 => bytes.truncate(at),
            3 => overwrite(bytes, at, chance),
            4 => drop(bytes.drain(at..(at + chance.below(64)).min(bytes.len()))),
            5 => {
                let piece = piece(chance, &bytes[at..], 256).to_vec();
                repeat(chance, bytes, at, &piece);
            }
            6 => {
                let from = chance.below(other.len());
                let piece = piece(chance, &other[from.min(other.len())..], 512).to_vec();
                bytes.splice(at..at, piece);
            }
            _ => bytes.extend((0..chance.below(40)).map(|_| 0)),
        }
    }
}

fn piece<'a>(chance: &mut Chance, from: &'a [u8], most: usize) -> &'a [u8] {
    &from[..chance.below(most).min(from.len())]
}

fn repeat(chance: &mut Chance, bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    let times = if chance.one_in(16) { chance.below(200) } else { 1 };
    bytes.splice(at..at, piece.repeat(times));
}

/// Overwrites bytes with a number in one of the usual widths and byte orders.
fn overwrite(bytes: &mut [u8], at: usize, chance: &mut Chance) {
    let number = chance.number();
    let mut written = if chance.one_in(2) { number.to_le_bytes() } else { number.to_be_bytes() };
    let width = 1 << chance.below(4);
    if chance.one_in(2) {
        written.rotate_left(8 - width);
    }
    for (to, from) in bytes.iter_mut().skip(at).zip(&written[..width]) {
        *to = *from;
    }
}

/// Changes text: numbers, words; drops, doubles or moves lines, or takes them from `other`; sometimes changes bytes.
pub fn text(chance: &mut Chance, before: &str, other: &str, words: &[&str]) -> Vec<u8> {
    let mut lines: Vec<String> = before.lines().map(str::to_owned).collect();
    for _ in 0..chance.few() {
        let at = chance.below(lines.len());
        match chance.below(10) {
            0 if !lines.is_empty() => drop(lines.remove(at)),
            1 if !lines.is_empty() => {
                let line = lines[at].clone();
                lines.insert(chance.below(lines.len()), line);
            }
            2 => {
                let taken: Vec<&str> = other.lines().collect();
                let from = chance.below(taken.len());
                let length = chance.below(12);
                let taken = taken.iter().skip(from).take(length).map(|line| (*line).to_owned());
                lines.splice(at..at, taken.collect::<Vec<_>>());
            }
            3 if lines.len() > 1 => {
                let second = chance.below(lines.len());
                lines.swap(at, second);
            }
            4..=7 if !lines.is_empty() => lines[at] = with_other_number(chance, &lines[at]),
            _ if !lines.is_empty() => lines[at] = with_other_word(chance, &lines[at], words),
            _ => {}
        }
    }
    let mut changed = lines.join("\n").into_bytes();
    if chance.one_in(6) {
        bytes(chance, &mut changed, other.as_bytes());
    }
    changed
}

fn number_text(chance: &mut Chance) -> String {
    match chance.below(12) {
        0 => "-1".into(),
        1 => "nan".into(),
        2 => "inf".into(),
        3 => "1e308".into(),
        4 => "5e-324".into(),
        5 => format!("{}.{}", chance.next() % 1000, chance.next() % 1000),
        6 => "340282366920938463463374607431768211456".into(),
        7 => "\"1\"".into(),
        _ => chance.number().to_string(),
    }
}

/// Replaces one of the numbers of a line.
fn with_other_number(chance: &mut Chance, line: &str) -> String {
    let digit = |c: char| c.is_ascii_digit() || c == '.';
    let starts: Vec<usize> = line
        .char_indices()
        .filter(|(at, c)| c.is_ascii_digit() && !line[..*at].ends_with(digit))
        .map(|(at, _)| at)
        .collect();
    if starts.is_empty() {
        return line.to_owned();
    }
    let start = *chance.pick(&starts);
    let end = line[start..].find(|c| !digit(c)).map_or(line.len(), |length| start + length);
    format!("{}{}{}", &line[..start], number_text(chance), &line[end..])
}

/// Replaces one of the quoted words of a line, or the whole value.
fn with_other_word(chance: &mut Chance, line: &str, words: &[&str]) -> String {
    let word = if words.is_empty() { "x" } else { *chance.pick(words) };
    let quotes: Vec<usize> = line.match_indices('"').map(|(at, _)| at).collect();
    if quotes.len() >= 2 && !chance.one_in(4) {
        let first = chance.below(quotes.len() - 1);
        return format!("{}\"{word}{}", &line[..quotes[first]], &line[quotes[first + 1]..]);
    }
    match line.split_once('=') {
        Some((name, _)) => {
            format!("{name}= {}", if chance.one_in(2) { format!("\"{word}\"") } else { number_text(chance) })
        }
        None => format!("{line}{word}"),
    }
}
