//! Runs targets: every kept input, then inputs made from a seed, each with an end and a bound on its time.

use crate::mutate::Random;
use dialoq_test_support::seeds::seeds;
use libtest_mimic::{Arguments, Failed, Trial};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Makes an input from the kept ones.
pub(crate) type Make = fn(&mut Random, &[Vec<u8>]) -> Vec<u8>;

/// Something that reads what others wrote.
pub(crate) struct Target {
    /// Its name, and that of its folder in `tests/fuzz/corpus`.
    pub(crate) name: &'static str,
    /// Reads an input; panics if a promise is broken.
    pub(crate) check: fn(&[u8]),
    /// Makes an input.
    pub(crate) make: Make,
    /// How many inputs a plain run makes.
    pub(crate) inputs: u64,
    /// How much CPU time an input may take for each byte beyond [`BASE`]; none if other threads do the work.
    pub(crate) per_byte: Option<Duration>,
}

/// CPU time that any input may take. A body that uses up the steps of a schema takes a tenth of it on a usual machine with
/// unoptimized code, so that a slow one does not fail; what grows faster than its input takes more soon.
const BASE: Duration = Duration::from_millis(2500);

/// An input that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// How long a failing input is made smaller.
const SHRINKING: Duration = Duration::from_secs(10);

/// Inputs that are made with words of the target's language.
macro_rules! made_with {
    ($words:expr) => {
        |random, corpus| $crate::mutate::mutate(random, corpus, $words)
    };
}
pub(crate) use made_with;

pub(crate) fn run(targets: &'static [Target]) -> ExitCode {
    let arguments = Arguments::from_args();
    record_panics();
    let mut trials = Vec::new();
    for target in targets {
        let kept = Trial::test(format!("{}::kept_inputs_pass", target.name), || kept(target));
        let made = Trial::test(format!("{}::made_inputs_pass", target.name), || made(target));
        trials.extend([kept, made]);
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn kept(target: &'static Target) -> Result<(), Failed> {
    let mut worker = Worker::start(target);
    for (name, input) in corpus(target)? {
        worker.check(&input).map_err(|why| format!("kept input '{name}': {why}"))?;
    }
    Ok(())
}

/// One input for each seed that [`seeds`] names.
fn made(target: &'static Target) -> Result<(), Failed> {
    let corpus: Vec<Vec<u8>> = corpus(target)?.into_iter().map(|(_, input)| input).collect();
    let mut worker = Worker::start(target);
    for seed in seeds(target.inputs) {
        let input = (target.make)(&mut Random::new(seed), &corpus);
        if let Err(why) = worker.check(&input) {
            let input = if worker.is_stuck { input } else { shrink(&mut worker, input, &kind(&why)) };
            let file = keep(target, &input)?;
            return Err(format!("DIALOQ_SEED={seed}: {why}\nkept as {}", file.display()).into());
        }
    }
    Ok(())
}

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target.name)
}

/// The kept inputs by their names, in order.
fn corpus(target: &Target) -> Result<Vec<(String, Vec<u8>)>, Failed> {
    let folder = folder(target);
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry?.path();
        inputs.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), std::fs::read(&path)?));
    }
    inputs.sort();
    if inputs.is_empty() { Err(format!("{} holds no inputs", folder.display()).into()) } else { Ok(inputs) }
}

/// Keeps a failing input, so that the next run begins with it.
fn keep(target: &Target, input: &[u8]) -> Result<PathBuf, Failed> {
    let hash = input
        .iter()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
    let file = folder(target).join(format!("failed-{hash:016x}"));
    std::fs::write(&file, input)?;
    Ok(file)
}

/// What a failure says without its numbers, as far as it says which one it is.
fn kind(why: &str) -> String {
    why.chars().filter(|c| !c.is_ascii_digit()).take(120).collect()
}

/// Takes parts out of a failing input for as long as it fails in the same way without them.
fn shrink(worker: &mut Worker, mut input: Vec<u8>, fault: &str) -> Vec<u8> {
    let fails = |worker: &mut Worker, input: &[u8]| {
        worker.check(input).is_err_and(|why| !worker.is_stuck && kind(&why) == fault)
    };
    let end = Instant::now() + SHRINKING;
    for line in input.clone().split_inclusive(|byte| *byte == b'\n') {
        let place = input.windows(line.len()).position(|part| part == line);
        let Some(place) = place.filter(|_| line.len() < input.len() && Instant::now() < end) else { continue };
        let smaller = [&input[..place], &input[place + line.len()..]].concat();
        if fails(worker, &smaller) {
            input = smaller;
        }
    }
    let mut length = input.len() / 2;
    while length > 0 {
        let mut begin = 0;
        while begin < input.len() {
            let mut smaller = input.clone();
            smaller.drain(begin..(begin + length).min(input.len()));
            if Instant::now() > end || worker.is_stuck {
                return input;
            }
            if fails(worker, &smaller) {
                input = smaller;
            } else {
                begin += length;
            }
        }
        length /= 2;
    }
    input
}

/// A thread that checks inputs, so that one that hangs is noticed.
struct Worker {
    target: &'static Target,
    inputs: Sender<Vec<u8>>,
    verdicts: Receiver<Result<(), String>>,
    is_stuck: bool,
}

impl Worker {
    fn start(target: &'static Target) -> Self {
        let (inputs, to_check) = channel::<Vec<u8>>();
        let (answer, verdicts) = channel();
        std::thread::spawn(move || {
            while let Ok(input) = to_check.recv() {
                if answer.send(check(target, &input)).is_err() {
                    return;
                }
            }
        });
        Self { target, inputs, verdicts, is_stuck: false }
    }

    fn check(&mut self, input: &[u8]) -> Result<(), String> {
        let handed_over = self.inputs.send(input.to_vec());
        assert!(handed_over.is_ok(), "the thread that checks {} is gone", self.target.name);
        match self.verdicts.recv_timeout(LIMIT) {
            Ok(verdict) => verdict,
            Err(RecvTimeoutError::Timeout) => {
                self.is_stuck = true;
                Err(format!("it did not end within {LIMIT:?}"))
            }
            Err(RecvTimeoutError::Disconnected) => Err("the thread that checks it ended".to_owned()),
        }
    }
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_CHECKING: RefCell<bool> = const { RefCell::new(false) };
}

/// Panics of threads that the code under test has started.
static STRAY: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what panics say, so that a failure shows one of them and not thousands.
fn record_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if IS_CHECKING.with_borrow(|is_checking| *is_checking) {
            PANIC.with_borrow_mut(|panic| *panic = Some(info.to_string()));
        } else {
            STRAY.lock().expect("no panic holds this").push(info.to_string());
            usual(info);
        }
    }));
}

fn check(target: &Target, input: &[u8]) -> Result<(), String> {
    let before = cpu_time();
    IS_CHECKING.set(true);
    let outcome = std::panic::catch_unwind(|| (target.check)(input));
    IS_CHECKING.set(false);
    let used = cpu_time().saturating_sub(before);
    if outcome.is_err() {
        return Err(PANIC.take().unwrap_or_else(|| "it panicked without a word".to_owned()));
    }
    if let Some(stray) = STRAY.lock().expect("no panic holds this").pop() {
        return Err(format!("another thread panicked meanwhile: {stray}"));
    }
    let Some(per_byte) = target.per_byte else { return Ok(()) };
    let allowed = BASE + per_byte * u32::try_from(input.len()).unwrap_or(u32::MAX);
    if used > allowed {
        return Err(format!("{} bytes took {used:?} of CPU time; at most {allowed:?} is allowed", input.len()));
    }
    Ok(())
}

/// The CPU time of this thread, where the system shows it; other programs on the machine do not change it.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = schedstat.and_then(|schedstat| schedstat.split(' ').next()?.parse().ok());
    nanoseconds.map_or(Duration::ZERO, Duration::from_nanos)
}

/// An input that is text.
pub(crate) fn text(input: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(input)
}
