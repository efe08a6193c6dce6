//! `none`: no read-ahead. Each page costs a separate wait: the baseline for all other policies.

use crate::{Access, Policy, Requests, View};

/// Reads nothing ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct None;

impl Policy for None {
    fn access(&mut self, _access: &Access, _view: &dyn View, _requests: &mut Requests) {}
}
