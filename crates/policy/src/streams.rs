//! A table of states by opening.

use crate::OpenId;

/// What a policy remembers of each opening.
#[derive(Clone, Debug, Default)]
pub struct States<S> {
    states: Vec<S>,
}

impl<S: Clone + Default> States<S> {
    /// The state of an opening; a fresh one if nothing is known of it.
    pub fn of(&mut self, open: OpenId) -> &mut S {
        let index = open.0 as usize;
        if index >= self.states.len() {
            self.states.resize(index + 1, S::default());
        }
        &mut self.states[index]
    }

    /// Forgets an opening: its number may be given out again.
    pub fn forget(&mut self, open: OpenId) {
        if let Some(state) = self.states.get_mut(open.0 as usize) {
            *state = S::default();
        }
    }
}
