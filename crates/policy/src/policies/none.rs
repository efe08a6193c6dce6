//! `none`: nothing is read ahead. Each page costs a wait of its own: what everything else is compared with.

use crate::{Access, Policy, Requests, View};

/// Reads nothing ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct None;

impl Policy for None {
    fn access(&mut self, _access: &Access, _view: &dyn View, _requests: &mut Requests) {}
}
