//! Gauges that count what is there at the moment.

use metrics::Gauge;

/// A gauge that is higher by one until this is dropped. It falls in the recorder in which it has risen: one that was installed between the
/// two showed -1 for ever.
pub(crate) struct RaisedGauge(Gauge);

impl RaisedGauge {
    pub(crate) fn new(gauge: Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for RaisedGauge {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::GaugeFn;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Shown(Mutex<f64>);

    impl GaugeFn for Shown {
        fn increment(&self, by: f64) {
            *self.0.lock().unwrap() += by;
        }

        fn decrement(&self, by: f64) {
            *self.0.lock().unwrap() -= by;
        }

        fn set(&self, to: f64) {
            *self.0.lock().unwrap() = to;
        }
    }

    #[test]
    fn a_gauge_falls_by_as_much_as_it_has_risen() {
        let shown = Arc::new(Shown::default());
        let raised = [1, 2].map(|_| RaisedGauge::new(Gauge::from_arc(shown.clone())));
        assert_eq!(shown.0.lock().unwrap().to_string(), "2");
        drop(raised);
        assert_eq!(shown.0.lock().unwrap().to_string(), "0");
        drop(RaisedGauge::new(Gauge::noop()));
    }
}
