//! Memory that read-ahead may hold, shared by any number of consumers.
//!
//! [`Account`] has the rules. All numbers are in one atomic word, so no lock is held when a process forks. A child of fork(2) begins with an empty budget: the other
//! threads of its parent, and what they hold, do not exist in it.

use ahead_policy::reading::{Account, BUDGET_BYTES, MEMORY_SHARE, UNIT_BYTES};
use ahead_policy::schedule::Reserve;
use ahead_sys::fork_count::{PerProcess, fork_count};
use ahead_sys::{machine, memory, reserve};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the word: used units (up to 16 TiB), consumers (up to a million, more than a process has descriptors), fork count (a child differs
/// from its next 4095 generations).
const USED_BITS: u32 = 32;
const CONSUMER_BITS: u32 = 20;
const FORK_BITS: u32 = 12;

/// Largest numbers in their bits. What is beyond them is not counted.
const MOST_UNITS: u64 = (1 << USED_BITS) - 1;
const MOST_CONSUMERS: u64 = (1 << CONSUMER_BITS) - 1;

/// Memory that read-ahead may hold: pages or buffers that were requested and are not consumed yet. A clone is the same budget.
#[derive(Clone, Debug)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bytes: u64,
    word: AtomicU64,
}

fn part(word: u64, shift: u32, bits: u32) -> u64 {
    word >> shift & ((1 << bits) - 1)
}

/// The fork count of this process in the word.
fn fork_bits() -> u64 {
    part(u64::from(fork_count()), 0, FORK_BITS)
}

impl Shared {
    /// The account of this process in a word. The numbers of a parent do not count in its child.
    fn account(&self, word: u64) -> Account {
        let none = Account { bytes: self.bytes.min(MOST_UNITS * UNIT_BYTES), ..Account::default() };
        if part(word, USED_BITS + CONSUMER_BITS, FORK_BITS) != fork_bits() {
            return none;
        }
        Account { used_units: part(word, 0, USED_BITS), consumers: part(word, USED_BITS, CONSUMER_BITS), ..none }
    }
}

fn word(account: &Account) -> u64 {
    let (consumers, used_units) = (account.consumers.min(MOST_CONSUMERS), account.used_units.min(MOST_UNITS));
    fork_bits() << (USED_BITS + CONSUMER_BITS) | consumers << USED_BITS | used_units
}

impl Budget {
    /// A budget of this size, bytes. One that is smaller than the requests of its consumers still grants each consumer one request at a time.
    pub fn new(bytes: u64) -> Budget {
        Budget { shared: Arc::new(Shared { bytes, word: AtomicU64::new(0) }) }
    }

    /// The default budget of this process: 64 MiB, or a quarter of the memory that is available at the first use if that is less.
    pub fn global() -> Budget {
        static GLOBAL: PerProcess<Budget> = PerProcess::new();
        let available = || memory::available_bytes().map_or(BUDGET_BYTES, |bytes| bytes / MEMORY_SHARE);
        GLOBAL.get(|| Budget::new(available().min(BUDGET_BYTES))).clone()
    }

    /// Size, bytes.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes
    }

    /// What its consumers hold, bytes.
    pub fn used_bytes(&self) -> u64 {
        self.account().used_units * UNIT_BYTES
    }

    /// Consumers that are registered.
    pub fn readers(&self) -> usize {
        self.account().consumers as usize
    }

    /// Registers a consumer.
    pub fn register(&self) -> Share {
        self.update(|account| account.consumers += 1);
        Share { budget: self.clone(), held_units: 0, fork: fork_count() }
    }

    fn account(&self) -> Account {
        self.shared.account(self.shared.word.load(Ordering::Acquire))
    }

    fn update(&self, change: impl Fn(&mut Account)) {
        self.try_update(|account| {
            change(account);
            true
        });
    }

    /// Changes the account, unless `change` refuses.
    fn try_update(&self, change: impl Fn(&mut Account) -> bool) -> bool {
        let mut seen = self.shared.word.load(Ordering::Acquire);
        loop {
            let mut account = self.shared.account(seen);
            if !change(&mut account) {
                return false;
            }
            match self.shared.word.compare_exchange_weak(seen, word(&account), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::global()
    }
}

/// One consumer of a budget. It is unregistered, and gives all back, when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    held_units: u64,
    /// The process in which it is registered.
    fork: u32,
}

impl Share {
    /// What this consumer may hold now, bytes: the budget divided by the consumers, in whole pages, and at least one page.
    pub fn limit_bytes(&self) -> u64 {
        self.budget.account().share_bytes(machine::page_size())
    }

    /// Reserves bytes. `false`: they exceed the share, or others hold too much of the budget. A share that holds nothing is always granted
    /// what it asks for.
    pub fn take(&mut self, bytes: u64) -> bool {
        self.renew();
        let (units, held, page) = (bytes.div_ceil(UNIT_BYTES), self.held_units, machine::page_size());
        let is_granted = self.budget.try_update(|account| account.take(units, held, page));
        if is_granted {
            self.held_units += units;
        }
        is_granted
    }

    /// Gives back bytes that were taken, by the same amounts or multiples of a page. More than is held gives back all.
    pub fn give_back(&mut self, bytes: u64) {
        self.renew();
        let units = bytes.div_ceil(UNIT_BYTES).min(self.held_units);
        self.held_units -= units;
        self.budget.update(|account| account.give_back(units));
    }

    /// What this consumer holds, bytes.
    pub fn held_bytes(&self) -> u64 {
        self.held_units * UNIT_BYTES
    }

    /// Registers the share of a parent in this child of fork(2), where it holds nothing.
    fn renew(&mut self) {
        if self.fork != fork_count() {
            self.fork = fork_count();
            self.held_units = 0;
            self.budget.update(|account| account.consumers += 1);
        }
    }
}

/// As [`Share::take`], but nothing while memory is low.
impl Reserve for Share {
    fn take(&mut self, bytes: u64) -> bool {
        !reserve::is_low() && Share::take(self, bytes)
    }

    fn give_back(&mut self, bytes: u64) {
        Share::give_back(self, bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.fork == fork_count() {
            let units = self.held_units;
            self.budget.update(|account| {
                account.consumers = account.consumers.saturating_sub(1);
                account.give_back(units);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn shares_divide_the_budget_and_give_back_on_drop() {
        let budget = Budget::new(64 * MIB);
        let mut first = budget.register();
        assert_eq!(first.limit_bytes(), 64 * MIB);
        assert!(first.take(40 * MIB));
        let mut second = budget.register();
        assert_eq!((second.limit_bytes(), budget.readers()), (32 * MIB, 2));
        assert!(second.take(20 * MIB));
        assert!(!second.take(12 * MIB), "the first share still holds more than its half");
        first.give_back(40 * MIB);
        assert!(second.take(12 * MIB) && !second.take(MIB));
        drop((first, second));
        assert_eq!((budget.used_bytes(), budget.readers()), (0, 0));
    }

    #[test]
    fn share_that_holds_nothing_is_granted_one_request() {
        let budget = Budget::new(1);
        let mut shares: Vec<Share> = (0..3).map(|_| budget.register()).collect();
        for share in &mut shares {
            assert_eq!(share.limit_bytes(), machine::page_size());
            assert!(share.take(MIB) && !share.take(1));
            share.give_back(MIB);
            assert!(share.take(1));
        }
    }

    #[test]
    fn largest_numbers_stay_in_their_bits() {
        let budget = Budget::new(u64::MAX);
        let mut share = budget.register();
        assert!(share.take(u64::MAX) && !share.take(1));
        assert_eq!((budget.used_bytes(), budget.readers()), (MOST_UNITS * UNIT_BYTES, 1));
        share.give_back(u64::MAX);
        let mut other = budget.register();
        assert!(share.take(1 << 40) && other.take(1 << 40));
        assert_eq!((budget.used_bytes(), budget.readers()), (2 << 40, 2));
        drop((share, other));
        assert_eq!((budget.used_bytes(), budget.readers()), (0, 0));
    }

    #[test]
    fn global_budget_is_one_object() {
        let before = Budget::global().readers();
        let share = Budget::global().register();
        assert!(Budget::global().readers() > before && Budget::global().bytes() <= BUDGET_BYTES);
        drop(share);
    }

    proptest! {
        /// Whatever the order, the budget's sum is that of its shares, and nothing is held at the end.
        #[test]
        fn used_bytes_are_the_sum_of_the_shares(
            bytes in 0..10 * MIB,
            steps in prop::collection::vec((0..4usize, any::<bool>(), 0..2 * MIB), 0..200),
        ) {
            let budget = Budget::new(bytes);
            let mut shares: Vec<Share> = (0..4).map(|_| budget.register()).collect();
            for (index, take, amount) in steps {
                if take {
                    let held = shares[index].held_bytes();
                    let is_granted = shares[index].take(amount);
                    prop_assert!(is_granted || held > 0);
                    let limit = shares[index].limit_bytes();
                    prop_assert!(!is_granted || held == 0 || shares[index].held_bytes() <= limit);
                } else {
                    shares[index].give_back(amount);
                }
                prop_assert_eq!(budget.used_bytes(), shares.iter().map(Share::held_bytes).sum::<u64>());
            }
            drop(shares);
            prop_assert_eq!((budget.used_bytes(), budget.readers()), (0, 0));
        }
    }
}
