//! A limit for every test: one that waits for ever fails, and says what every session waits for.
//!
//! `DIALOQ_TEST_LIMIT` sets the seconds; 120 by default. A test that is known to take long asks for more with
//! [`allow`]; a test of many rounds calls [`doing`] for each, which starts its time again.

use std::cell::RefCell;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A running test.
#[derive(Default)]
struct Case {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    limit: Option<Duration>,
    since: Option<Instant>,
    doing: String,
    reports: Vec<Report>,
}

type Report = Arc<dyn Fn() -> String + Send + Sync>;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Case>>> = const { RefCell::new(None) };
}

impl Case {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much time is left; `None` if none is.
    fn left(&self) -> Option<Duration> {
        let state = self.state();
        let (limit, since) = (state.limit.unwrap_or_else(by_default), state.since.unwrap_or_else(Instant::now));
        limit.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
    }

    fn report(&self) -> String {
        let (limit, doing, reports) = {
            let state = self.state();
            (state.limit.unwrap_or_else(by_default), state.doing.clone(), state.reports.clone())
        };
        let mut text = format!("the test did not end within {} s (DIALOQ_TEST_LIMIT)", limit.as_secs());
        if !doing.is_empty() {
            text.push_str(&format!("; it was at: {doing}"));
        }
        for report in reports {
            text.push_str(&format!("\n{}", in_time(report)));
        }
        text
    }
}

/// A report; gives up if the report hangs like the test.
fn in_time(report: Report) -> String {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(report()));
    receiver.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| "a report that did not end".to_owned())
}

fn by_default() -> Duration {
    let seconds = std::env::var("DIALOQ_TEST_LIMIT").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(120))
}

fn with_current(change: impl FnOnce(&mut State)) {
    CURRENT.with_borrow(|case| {
        if let Some(case) = case {
            change(&mut case.state());
        }
    });
}

/// Multiplies the limit of this thread's test by this factor.
pub fn allow(times: u32) {
    with_current(|state| state.limit = Some(by_default() * times));
}

/// Lets the test of this thread take so long from now on.
pub fn end_within(limit: Duration) {
    with_current(|state| (state.limit, state.since) = (Some(limit), Some(Instant::now())));
}

/// Says what the test of this thread does now, and starts its time again.
pub fn doing(what: impl Into<String>) {
    let what = what.into();
    with_current(|state| (state.doing, state.since) = (what, Some(Instant::now())));
}

/// Has something reported if the test of this thread does not end.
pub fn report_on(report: impl Fn() -> String + Send + Sync + 'static) {
    with_current(|state| state.reports.push(Arc::new(report)));
}

/// Runs a test on a thread of its own. If it does not end in time this says why and goes on; the thread stays behind.
pub fn run<T: Send + 'static>(name: &str, test: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let case = Arc::new(Case::default());
    case.state().since = Some(Instant::now());
    let (sender, receiver) = channel();
    let of_thread = case.clone();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            CURRENT.set(Some(of_thread));
            let done = test();
            CURRENT.set(None);
            let _ = sender.send(done);
        })
        .expect("a thread");
    loop {
        let Some(left) = case.left() else { return Err(case.report()) };
        // A limit may be made shorter meanwhile.
        match receiver.recv_timeout(left.min(Duration::from_secs(1))) {
            Ok(done) => {
                let _ = thread.join();
                return Ok(done);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Ok(()) => return Err("the test ended without a result".to_owned()),
                Err(panicked) => std::panic::resume_unwind(panicked),
            },
        }
    }
}

/// A limit for the test that holds this: dropped when the test ends.
pub struct Limit {
    case: Arc<Case>,
    _until: Sender<()>,
}

impl Limit {
    /// Says what the test does now, and starts its time again.
    pub fn doing(&self, what: impl Into<String>) {
        let mut state = self.case.state();
        (state.doing, state.since) = (what.into(), Some(Instant::now()));
    }
}

/// A limit for a test of the standard harness, which cannot go on without it: the process ends with failure.
#[must_use = "the limit counts while it is held"]
pub fn limit(report: impl Fn() -> String + Send + Sync + 'static) -> Limit {
    let case = Arc::new(Case::default());
    {
        let mut state = case.state();
        state.since = Some(Instant::now());
        state.reports.push(Arc::new(report));
    }
    let (sender, receiver) = channel::<()>();
    let watched = case.clone();
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        while let Some(left) = watched.left() {
            if receiver.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
        // Past the harness, which keeps what tests print until they end.
        let _ = writeln!(std::io::stderr(), "{name}: {}", watched.report());
        std::process::exit(101);
    });
    Limit { case, _until: sender }
}
