//! Text in the exposition format of Prometheus, version 0.0.4.

/// The text as it grows: each family, then its values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Text(String);

impl Text {
    /// Begins a family: `kind` is counter, gauge or histogram.
    pub fn family(&mut self, name: &str, kind: &str, about: &str) {
        self.0 += &format!("# HELP {name} {about}\n# TYPE {name} {kind}\n");
    }

    /// A value of the family, or of a part of it. `labels` are `NAME="VALUE"` with commas between.
    pub fn value(&mut self, name: &str, labels: &str, value: f64) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        self.0 += &format!("{name}{labels} {value}\n");
    }

    /// A histogram: how many are in each bucket, its upper edge beside it; the rest is above the
    /// last. `sum` is that of the values.
    pub fn histogram(&mut self, name: &str, labels: &str, buckets: &[(f64, u64)], count: u64, sum: f64) {
        let separator = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (edge, more) in buckets {
            below += more;
            self.value(&format!("{name}_bucket"), &format!("{labels}{separator}le=\"{edge}\""), below as f64);
        }
        self.value(&format!("{name}_bucket"), &format!("{labels}{separator}le=\"+Inf\""), count as f64);
        self.value(&format!("{name}_sum"), labels, sum);
        self.value(&format!("{name}_count"), labels, count as f64);
    }

    /// All of it.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

/// A value of a label, without its quotes.
#[must_use]
pub fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
