//! The window of an open file, as the acts have set it and as decisions show it.

/// An act takes effect within this time; decisions until then may have the window before it: 1 s.
const SETTING_NS: u64 = 1_000_000_000;

/// The window of an open file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    /// The window now, pages.
    pub pages: u64,
    /// The window before the first act.
    pub baseline: u64,
    /// The window before the last act and the time of the act, until a decision shows its effect.
    pending: Option<(u64, u64)>,
}

impl Setting {
    /// The window at first sight.
    pub fn new(pages: u64, baseline: u64) -> Setting {
        Setting { pages, baseline, pending: None }
    }

    /// An act sets the window.
    pub fn set(&mut self, pages: u64, at_ns: u64) {
        self.pending = Some((self.pages, at_ns));
        self.pages = pages;
    }

    /// The last act was not carried out.
    pub fn unset(&mut self) {
        if let Some((before, _)) = self.pending.take() {
            self.pages = before;
        }
    }

    /// Whether it differs from the window before the first act.
    pub fn is_changed(&self) -> bool {
        self.pages != self.baseline
    }

    /// Compares it with the window that a decision shows. False: the program has changed it.
    pub fn check(&mut self, seen_pages: u64, at_ns: u64) -> bool {
        if seen_pages == self.pages {
            self.pending = None;
            return true;
        }
        let Some((_, set_ns)) = self.pending.filter(|(before, _)| *before == seen_pages) else { return false };
        if at_ns.saturating_sub(set_ns) > SETTING_NS {
            self.unset();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_window_is_accepted_until_the_act_takes_effect() {
        let mut setting = Setting::new(32, 32);
        setting.set(128, 0);
        assert!(setting.check(32, 1) && setting.check(128, 2));
        // The act was effective: this is an act of the program.
        assert!(!setting.check(32, 3));
    }

    #[test]
    fn act_without_effect_counts_as_not_carried_out() {
        let mut setting = Setting::new(32, 32);
        setting.set(128, 0);
        assert!(setting.check(32, SETTING_NS + 1));
        assert_eq!((setting.pages, setting.is_changed()), (32, false));
        assert!(!setting.check(64, SETTING_NS + 2));
    }
}
