//! A table of states by open file.

use crate::OpenId;

/// The states that a policy keeps, one for each open file.
#[derive(Clone, Debug, Default)]
pub struct States<S> {
    states: Vec<S>,
}

impl<S: Clone + Default> States<S> {
    /// The state of an open file; a new one if the file is unknown.
    pub fn of(&mut self, open: OpenId) -> &mut S {
        let index = open.0 as usize;
        if index >= self.states.len() {
            self.states.resize(index + 1, S::default());
        }
        &mut self.states[index]
    }

    /// All states.
    pub fn all(&mut self) -> impl Iterator<Item = &mut S> {
        self.states.iter_mut()
    }

    /// Removes the state of an open file: its number may be reused.
    pub fn forget(&mut self, open: OpenId) {
        if let Some(state) = self.states.get_mut(open.0 as usize) {
            *state = S::default();
        }
    }
}
