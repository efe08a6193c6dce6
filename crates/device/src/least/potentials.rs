//! The share of each piece in the time between pieces: a dual solution of the assignment of successors.
//!
//! Every schedule is a walk of the head from piece to piece. Each visit of a piece has one move to it and one move away from it, except
//! the first and the last of the walk. Let `leave[i] + arrive[j]` be at most the least time of the move from `i` to `j`, for all pairs.
//! Then the moves of a walk take at least the sum of `leave` and `arrive` over its visits. The largest sum is the dual of the cheapest
//! circulation that visits every piece at least once, a good bound for the cheapest order.
//!
//! ```text
//!            arrive[a]  leave[a]   arrive[b]  leave[b]
//!   ... ---------> ( a ) ------------> ( b ) ------------> ...        move(a, b) >= leave[a] + arrive[b]
//! ```
//!
//! A schedule may visit a piece several times and read a part each time, and it may visit pieces that nothing has used yet. So
//! `leave + arrive` is never negative: further visits never lower the sum. The move is the least between any positions of the two pieces.
//!
//! The potentials are computed with a few candidates for each piece. Then the pairs with shorter moves become candidates, too.
//! Finally the potentials are made valid against every pair, whatever came before: a bad choice of candidates lowers the bound, and never
//! breaks it.

use super::cover::{Candidate, Cover};
use super::platter::{Platter, Span};

/// The shares of the pieces, nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Potentials {
    /// Share in the move away from each piece.
    pub leave_ns: Vec<i64>,
    /// Share in the move to each piece.
    pub arrive_ns: Vec<i64>,
}

/// Candidates of each piece at first, and how many are added at a time.
const CANDIDATES: usize = 16;

/// Pairs that are compared for each piece at most; farther ones count with the least time of their distance.
const MAX_COMPARED: usize = 4096;

/// How often candidates are added. Four or five times are enough as a rule.
const MAX_SOLVED: usize = 10;

/// Passes over all pairs that make the sum of each piece non-negative. A few are enough as a rule.
const MAX_PASSES: usize = 64;

/// Candidates are complete when the moves are shorter by less than this part of the sum.
const COMPLETE: i64 = 500;

impl Potentials {
    /// The shares of these pieces, in ascending order.
    pub(super) fn new(platter: &Platter, spans: &[Span]) -> Potentials {
        let moves = Moves { platter, spans };
        let nearest_ns = vec![0; spans.len()];
        let nearest = Potentials { arrive_ns: moves.arrive_ns(&nearest_ns), leave_ns: nearest_ns };
        if platter.is_fixed() {
            return nearest;
        }
        match moves.valid(moves.solve()) {
            Some(found) if found.total_ns() > nearest.total_ns() => found,
            _ => nearest,
        }
    }

    fn total_ns(&self) -> i64 {
        let most_ns = |share_ns: &[i64]| share_ns.iter().max().copied().unwrap_or(0);
        let sum_ns: i64 = self.leave_ns.iter().chain(&self.arrive_ns).sum();
        sum_ns - most_ns(&self.leave_ns) - most_ns(&self.arrive_ns)
    }
}

/// The least times of all moves.
struct Moves<'a> {
    platter: &'a Platter,
    spans: &'a [Span],
}

impl Moves<'_> {
    fn move_ns(&self, from: usize, to: usize) -> i64 {
        self.platter.move_ns(&self.spans[from], &self.spans[to])
    }

    /// The other pieces, the nearest first, each with the least time of a move between it or a farther one and this piece.
    fn outwards(&self, index: usize) -> impl Iterator<Item = (usize, i64)> {
        let spans = self.spans;
        let (mut before, mut after) = (index, index + 1);
        std::iter::from_fn(move || {
            let left = before.checked_sub(1).map(|at| (Platter::distance(&spans[at], &spans[index]), at));
            let right = (after < spans.len()).then(|| (Platter::distance(&spans[index], &spans[after]), after));
            let (distance, at) = match (left, right) {
                (Some(left), Some(right)) => left.min(right),
                (one, other) => one.or(other)?,
            };
            if at < index {
                before = at;
            } else {
                after = at + 1;
            }
            Some((at, self.platter.floor_ns(distance)))
        })
    }

    /// At most the least of `time_ns(other)` over all other pieces. `time_ns` must be at least the move plus `least_extra_ns`.
    fn least_over_all(&self, index: usize, least_extra_ns: i64, time_ns: impl Fn(usize) -> i64) -> i64 {
        let mut least_ns = i64::MAX;
        for (compared, (other, floor_ns)) in self.outwards(index).enumerate() {
            let farther_ns = floor_ns + least_extra_ns;
            if farther_ns >= least_ns {
                break;
            }
            if compared >= MAX_COMPARED {
                return farther_ns;
            }
            least_ns = least_ns.min(time_ns(other));
        }
        // A single piece has no moves.
        if least_ns == i64::MAX { 0 } else { least_ns }
    }

    /// `arrive` for given values of `leave`: the largest that are valid against every piece.
    fn arrive_ns(&self, leave_ns: &[i64]) -> Vec<i64> {
        let most_ns = leave_ns.iter().max().copied().unwrap_or(0);
        let least_ns = |to| self.least_over_all(to, -most_ns, |from| self.move_ns(from, to) - leave_ns[from]);
        (0..self.spans.len()).map(least_ns).collect()
    }

    /// Lowers `leave` until its values are valid for every pair together with `arrive_ns`. `None`: not within the passes.
    ///
    /// The sum of piece `i` is not negative if `leave[k] <= move(k, i) + leave[i]` for every other `k`.
    fn valid(&self, mut leave_ns: Vec<i64>) -> Option<Potentials> {
        for _ in 0..MAX_PASSES {
            let mut changed = false;
            let lowest_ns = leave_ns.iter().min().copied().unwrap_or(0);
            let mut lowest_now_ns = lowest_ns;
            for from in 0..self.spans.len() {
                let most_ns = self.least_over_all(from, lowest_now_ns, |to| self.move_ns(from, to) + leave_ns[to]);
                if most_ns < leave_ns[from] {
                    leave_ns[from] = most_ns;
                    lowest_now_ns = lowest_now_ns.min(most_ns);
                    changed = true;
                }
            }
            if !changed {
                let arrive_ns = self.arrive_ns(&leave_ns);
                let sums = leave_ns.iter().zip(&arrive_ns).map(|(leave, arrive)| leave + arrive);
                return sums.min().is_some_and(|least_ns| least_ns >= 0).then_some(Potentials { leave_ns, arrive_ns });
            }
        }
        None
    }

    /// The cheapest predecessors of each piece, and those of which it is among the cheapest successors, out of the nearest.
    fn cheapest_pairs(&self) -> Vec<Vec<usize>> {
        let mut predecessors: Vec<Vec<usize>> = vec![Vec::new(); self.spans.len()];
        for index in 0..self.spans.len() {
            let (mut into, mut out): (Vec<_>, Vec<_>) = self
                .outwards(index)
                .take(4 * CANDIDATES)
                .map(|(other, _)| ((self.move_ns(other, index), other), (self.move_ns(index, other), other)))
                .unzip();
            for side in [&mut into, &mut out] {
                side.sort_unstable();
                side.truncate(CANDIDATES);
            }
            predecessors[index].extend(into.into_iter().map(|(_, other)| other));
            for (_, other) in out {
                predecessors[other].push(index);
            }
        }
        predecessors
    }

    /// `leave` of the cheapest circulation. Adds the pairs whose moves are shorter than the potentials say, and solves again.
    fn solve(&self) -> Vec<i64> {
        let mut pairs = self.cheapest_pairs();
        let mut leave_ns = vec![0; self.spans.len()];
        for _ in 0..MAX_SOLVED {
            let candidates: Vec<Vec<Candidate>> = pairs
                .iter_mut()
                .enumerate()
                .map(|(to, list)| {
                    list.sort_unstable();
                    list.dedup();
                    list.iter().map(|&from| (from, self.move_ns(from, to))).collect()
                })
                .collect();
            let cover = Cover::solve(&candidates);
            let most_ns = cover.leave_ns.iter().max().copied().unwrap_or(0);
            let mut short_ns = 0;
            for (to, list) in pairs.iter_mut().enumerate() {
                let mut shorter: Vec<(i64, usize)> = self.shorter(to, &cover, most_ns).collect();
                shorter.sort_unstable();
                short_ns -= shorter.first().map_or(0, |(rest_ns, _)| *rest_ns);
                list.extend(shorter.iter().take(CANDIDATES).map(|(_, from)| *from));
            }
            let sum_ns: i64 = cover.leave_ns.iter().chain(&cover.arrive_ns).sum();
            leave_ns = cover.leave_ns;
            if short_ns * COMPLETE <= sum_ns {
                break;
            }
        }
        leave_ns
    }

    /// The pieces from which a move to `to` is shorter than the potentials say, with the (negative) difference.
    fn shorter(&self, to: usize, cover: &Cover, most_ns: i64) -> impl Iterator<Item = (i64, usize)> {
        let arrive_ns = cover.arrive_ns[to];
        self.outwards(to)
            .take(MAX_COMPARED)
            .take_while(move |(_, floor_ns)| floor_ns - most_ns < arrive_ns)
            .map(move |(from, _)| (self.move_ns(from, to) - cover.leave_ns[from] - arrive_ns, from))
            .filter(|(rest_ns, _)| *rest_ns < 0)
    }
}
