//! The cheapest circulation that visits each node at least once, by successive shortest paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A candidate move: from a node, its time in nanoseconds.
pub(super) type Candidate = (usize, i64);

/// Potentials of the nodes: `leave[i] + arrive[j] <= move(i, j)` for all candidates, and `leave[i] + arrive[i] >= 0`.
/// Their sum is the time of the cheapest circulation of candidates that visits each node at least once.
///
/// Each node has an out-copy and an in-copy. An augmenting path starts at an in-copy without a predecessor. It takes a predecessor from another
/// in-copy, or visits the predecessor once more, until it finds an out-copy without a successor.
pub(super) struct Cover<'a> {
    /// Candidates to move to each node.
    predecessors: &'a [Vec<Candidate>],
    pub leave_ns: Vec<i64>,
    pub arrive_ns: Vec<i64>,
    successors: Vec<Vec<usize>>,
    extra_visits: Vec<u32>,
    search: Search,
}

/// The state of the search for a path. Out-copies are numbered after in-copies.
struct Search {
    distance_ns: Vec<i64>,
    parent: Vec<usize>,
    reached: Vec<usize>,
    heap: BinaryHeap<Reverse<(i64, usize)>>,
}

impl Search {
    fn reach(&mut self, node: usize, distance_ns: i64, parent: usize) {
        if distance_ns < self.distance_ns[node] {
            if self.distance_ns[node] == i64::MAX {
                self.reached.push(node);
            }
            (self.distance_ns[node], self.parent[node]) = (distance_ns, parent);
            self.heap.push(Reverse((distance_ns, node)));
        }
    }
}

impl Cover<'_> {
    /// Solves it. A node without a predecessor is left without one; the potentials are valid in any case.
    pub(super) fn solve(predecessors: &[Vec<Candidate>]) -> Cover<'_> {
        let count = predecessors.len();
        let mut cover = Cover {
            predecessors,
            leave_ns: vec![0; count],
            arrive_ns: vec![0; count],
            successors: vec![Vec::new(); count],
            extra_visits: vec![0; count],
            search: Search {
                distance_ns: vec![i64::MAX; 2 * count],
                parent: vec![usize::MAX; 2 * count],
                reached: Vec::new(),
                heap: BinaryHeap::new(),
            },
        };
        let mut open = Vec::new();
        for (to, candidates) in predecessors.iter().enumerate() {
            let Some(&(from, move_ns)) = candidates.iter().min_by_key(|(_, move_ns)| *move_ns) else { continue };
            cover.arrive_ns[to] = move_ns;
            if cover.successors[from].is_empty() {
                cover.successors[from].push(to);
            } else {
                open.push(to);
            }
        }
        for to in open {
            cover.augment(to);
        }
        cover
    }

    fn augment(&mut self, to: usize) {
        let count = self.predecessors.len();
        self.search.reach(to, 0, usize::MAX);
        let mut end = None;
        while let Some(Reverse((distance_ns, node))) = self.search.heap.pop() {
            if distance_ns > self.search.distance_ns[node] {
                continue;
            }
            if let Some(from) = node.checked_sub(count) {
                if self.successors[from].is_empty() {
                    end = Some(node);
                    break;
                }
                for &next in &self.successors[from] {
                    self.search.reach(next, distance_ns, node);
                }
                self.search.reach(from, distance_ns + self.leave_ns[from] + self.arrive_ns[from], node);
            } else {
                for &(from, move_ns) in &self.predecessors[node] {
                    let rest_ns = move_ns - self.leave_ns[from] - self.arrive_ns[node];
                    self.search.reach(count + from, distance_ns + rest_ns, node);
                }
                if self.extra_visits[node] > 0 {
                    self.search.reach(count + node, distance_ns, node);
                }
            }
        }
        if let Some(end) = end {
            let total_ns = self.search.distance_ns[end];
            for &node in &self.search.reached {
                let less_ns = (total_ns - self.search.distance_ns[node]).max(0);
                match node.checked_sub(count) {
                    Some(from) => self.leave_ns[from] -= less_ns,
                    None => self.arrive_ns[node] += less_ns,
                }
            }
            self.flip(end);
        }
        for node in self.search.reached.drain(..) {
            self.search.distance_ns[node] = i64::MAX;
        }
        self.search.heap.clear();
    }

    fn flip(&mut self, end: usize) {
        let count = self.predecessors.len();
        let mut node = end;
        while self.search.parent[node] != usize::MAX {
            let parent = self.search.parent[node];
            match (node.checked_sub(count), parent.checked_sub(count)) {
                (Some(from), None) if from == parent => self.extra_visits[from] -= 1,
                (Some(from), None) => self.successors[from].push(parent),
                (None, Some(from)) if from == node => self.extra_visits[from] += 1,
                (None, Some(from)) => {
                    let at = self.successors[from].iter().position(|next| *next == node);
                    self.successors[from].swap_remove(at.expect("it was a successor"));
                }
                _ => unreachable!("paths alternate between the copies"),
            }
            node = parent;
        }
    }
}
