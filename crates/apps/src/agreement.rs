//! Whether arguments matter: whether starts with another first word read the same pages.
//!
//! ```text
//!     agreement below 0.8 ──▶ own profile ──▶ 0.9 and more ──▶ shared again ──▶ below 0.8 ──▶ own profile, for good
//! ```
//!
//! A variant that moves back and forth would lose its recordings each time.

use ahead_model::range_set::RangeSet;
use ahead_profile::{Extent, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Profiles that agree by less are not merged.
pub const SPLIT_BELOW: f64 = 0.8;
/// Profiles that agree by this are merged again: half as much difference as that which split them.
pub const JOIN_FROM: f64 = 0.9;
/// Variants of a program that are remembered. A program with more takes names or patterns as its first word: then words do not matter.
const MAX_VARIANTS: usize = 16;

/// The share of pages that two profiles have in common: bytes in both, divided by bytes in either, of files and metadata, by path and offset.
/// Versions of files are not compared: an update is no other way to use a program. 1 if both are empty.
pub fn agreement(one: &Profile, other: &Profile) -> f64 {
    let (one, other) = (pages(one), pages(other));
    let count = |pages: &BTreeMap<PagesOf, RangeSet>| pages.values().map(RangeSet::count).sum::<u64>();
    let shared: u64 = one.iter().filter_map(|(place, set)| Some(set.count_common(other.get(place)?))).sum();
    let either = count(&one) + count(&other) - shared;
    if either == 0 { 1.0 } else { shared as f64 / either as f64 }
}

/// The file, or the mount point of metadata.
type PagesOf<'a> = (bool, &'a [u8]);

fn pages(profile: &Profile) -> BTreeMap<PagesOf<'_>, RangeSet> {
    let mut pages: BTreeMap<PagesOf<'_>, RangeSet> = BTreeMap::new();
    let mut add = |place, extents: &[Extent]| {
        let set = pages.entry(place).or_default();
        extents.iter().filter(|extent| extent.length_bytes > 0).for_each(|extent| set.insert(extent.range()));
    };
    profile.files.iter().filter(|file| !file.deleted).for_each(|file| add((true, &file.path), &file.extents));
    profile.metadata.iter().for_each(|metadata| add((false, &metadata.mount_point), &metadata.extents));
    pages
}

/// The variants of a program that were seen, and which have a separate profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Variants(BTreeMap<String, VariantState>);

/// Where the starts of a variant belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariantState {
    /// To the common profile.
    Shared,
    /// To its own profile.
    Own,
    /// To the common profile, after it had its own.
    SharedAgain,
    /// To its own profile, for good.
    OwnForGood,
}

impl Variants {
    /// Whether starts of this variant belong to a separate profile.
    pub fn is_own(&self, variant: &str) -> bool {
        matches!(self.0.get(variant), Some(VariantState::Own | VariantState::OwnForGood))
    }

    /// Whether a recording of this variant would show something new: it was never compared, and there is room to remember it.
    pub fn is_new(&self, variant: &str) -> bool {
        !self.0.contains_key(variant) && self.0.len() < MAX_VARIANTS
    }

    /// Takes over that a recording of a variant agrees with the common profile by `agreement`. Returns whether its starts belong to a profile
    /// to a separate profile from now on.
    pub fn compare(&mut self, variant: &str, agreement: f64) -> bool {
        use VariantState::{Own, OwnForGood, Shared, SharedAgain};
        if !self.is_new(variant) && !self.0.contains_key(variant) {
            return false;
        }
        let state = self.0.entry(variant.to_owned()).or_insert(Shared);
        *state = match *state {
            Shared if agreement < SPLIT_BELOW => Own,
            Own if agreement >= JOIN_FROM => SharedAgain,
            SharedAgain if agreement < SPLIT_BELOW => OwnForGood,
            same => same,
        };
        matches!(state, Own | OwnForGood)
    }

    /// Gives a variant a separate profile for good: one was recorded by hand.
    pub fn set_own(&mut self, variant: &str) {
        if self.0.contains_key(variant) || self.0.len() < MAX_VARIANTS {
            self.0.insert(variant.to_owned(), VariantState::OwnForGood);
        }
    }

    /// Those with a separate profile.
    pub fn own(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str).filter(|variant| self.is_own(variant))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ahead_profile::{File, Recording};
    use proptest::prelude::*;

    /// A recording that used these pages of a file.
    pub fn recording(path: &str, pages: impl IntoIterator<Item = u64>) -> Profile {
        let extents = pages.into_iter().map(|page| Extent {
            offset_bytes: page * 4096,
            length_bytes: 4096,
            runs: 1,
            ..Extent::default()
        });
        let file = File { path: path.into(), size_bytes: 1 << 30, extents: extents.collect(), ..File::default() };
        let recording = Recording { runs: 1, ..Recording::default() };
        Profile { recording, files: vec![file], ..Profile::default() }
    }

    #[test]
    fn agreement_is_shared_bytes_of_all_bytes() {
        let of = |one: std::ops::Range<u64>, other: std::ops::Range<u64>| {
            agreement(&recording("/a", one), &recording("/a", other))
        };
        assert_eq!((of(0..8, 0..10), of(0..10, 2..10), of(0..5, 5..10), of(0..0, 0..0)), (0.8, 0.8, 0.0, 1.0));
        assert_eq!(agreement(&recording("/a", 0..4), &recording("/b", 0..4)), 0.0);
    }

    #[test]
    fn variant_is_split_joined_once_and_then_stays() {
        let mut variants = Variants::default();
        let states: Vec<bool> = [0.85, 0.79, 0.85, 0.89, 0.9, 0.85, 0.79, 1.0, 0.5]
            .into_iter()
            .map(|agreement| variants.compare("log", agreement))
            .collect();
        assert_eq!(states, [false, true, true, true, false, false, true, true, true]);
        assert_eq!(variants.own().collect::<Vec<_>>(), ["log"]);
    }

    #[test]
    fn program_with_many_first_words_has_one_profile() {
        let mut variants = Variants::default();
        for number in 0..MAX_VARIANTS {
            assert!(!variants.compare(&format!("w{number}"), 1.0));
        }
        assert!(!variants.is_new("other") && !variants.compare("other", 0.0) && !variants.is_own("other"));
    }

    proptest! {
        #[test]
        fn no_sequence_of_agreements_moves_a_variant_more_than_three_times(agreements in prop::collection::vec(0.0f64..=1.0, 0..64)) {
            let mut variants = Variants::default();
            let (mut own, mut moves) = (false, 0);
            for agreement in agreements {
                let now = variants.compare("x", agreement);
                moves += usize::from(now != own);
                own = now;
            }
            prop_assert!(moves <= 3);
        }
    }
}
