//! `dialoq work run`

use super::lines::{Lines, say_event};
use crate::cli::failure::{Failure, without_path};
use crate::cli::globals::{Globals, parse_time_to_work};
use crate::cli::interrupt::Interrupt;
use crate::cli::output::{Output, counted, printable_name};
use clap::Args;
use dialoq::activation::Program;
use dialoq::internals::{ErrorConstructors, StartedProgram, check_reader, has_not_begun, observed_by};
use dialoq::work::{Context, WorkDone, WorkQueue};
use dialoq::{Broker, Code, Error};
use serde_json::json;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::watch;

/// Run a program for each job of a work queue.
///
/// The program gets the body on its standard input, and the environment variables DIALOQ_JOB, DIALOQ_TOKEN, DIALOQ_JOB_TYPE,
/// DIALOQ_JOB_KEY, DIALOQ_ATTEMPT and DIALOQ_QUEUE. Exit code 0 completes the job, and its standard output, byte by byte but for
/// the end of the last line, is the result; anything else is a failed attempt, whose reason ends with the program's last words on
/// its standard error; it is named on standard error, with --json by an event. While the program runs its lease is prolonged. The first ctrl-C lets
/// running programs end, the second kills them. A program that cannot be started is no failed attempt: its job is held, and the
/// start is tried again every 5 s, up to the first ctrl-C, which gives the job back. If an embedded store takes nothing more, as
/// after a commit that failed, it ends with exit code 1 once they have ended.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq work run emails --exec ./send-mail --readers 8
  dialoq work run emails --exec ./send-mail --readers 50 --activated
  dialoq work run videos --exec ffmpeg --timeout 1h -- -i pipe:0 out.mp4")]
pub(super) struct Run {
    /// The work queue.
    queue: String,
    /// The program.
    #[arg(long, value_name = "PROGRAM")]
    exec: OsString,
    /// How many programs run at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    readers: u16,
    /// Start readers while there are jobs and end them when there are none: at most --readers of this process, and at most
    /// MAX_QUEUE_READERS of the work queue over all processes.
    #[arg(long)]
    activated: bool,
    /// Only jobs of this type.
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// How long a program may run; then it is killed, and the attempt has failed.
    #[arg(long, value_name = "SPAN", value_parser = parse_time_to_work)]
    timeout: Option<Duration>,
    /// The name of the readers in statistics.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Arguments of the program.
    #[arg(last = true)]
    args: Vec<OsString>,
}

/// Counts as one program at work until it is dropped.
struct AtWork(Arc<AtomicUsize>);

impl AtWork {
    fn begin(programs: Arc<AtomicUsize>) -> Self {
        programs.fetch_add(1, SeqCst);
        Self(programs)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Run {
    pub(super) async fn run(
        &self,
        globals: &Globals,
        output: &Output,
        interrupt: &mut Interrupt,
    ) -> Result<(), Failure> {
        Program::new(&self.exec).check().map_err(|error| without_path(error, &self.exec))?;
        check_reader(self.name.as_deref(), self.job_type.as_deref())?;
        let broker = globals.open_service(interrupt).await?;
        if broker.catalog().work_queue(&self.queue).is_none() {
            // The refusal of a take, before any program is started.
            use dialoq::Act;
            drop(broker.take_jobs(&self.queue).await?);
        }
        // The name lives as long as the process, as that of a queue in a program does.
        let queue: WorkQueue<Vec<u8>> = WorkQueue::raw(Box::leak(self.queue.clone().into_boxed_str()));
        let program = Arc::new((self.exec.clone(), self.args.clone(), self.timeout));
        let (stop, stopping) = watch::channel(false);
        let at_work = Arc::new(AtomicUsize::new(0));
        let programs = at_work.clone();
        let (lines, written) = Lines::written_by_a_thread(output.json, interrupt)?;
        let of_programs = lines.clone();
        let worker = broker.worker(queue, move |context, body| {
            let (program, mut stopping, programs) = (program.clone(), stopping.clone(), programs.clone());
            let lines = of_programs.clone();
            async move {
                let (exec, args, timeout) = &*program;
                // A start that fails says nothing of the job.
                let started = loop {
                    let why = match StartedProgram::start(exec, args, environment(&context)) {
                        Ok(started) => break started,
                        Err(error) => error.message().to_owned(),
                    };
                    lines.warning(format!("not started: {why}; trying again in 5 s"));
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => {}
                        _ = stopping.wait_for(|stopping| *stopping) => {
                            has_not_begun(&context);
                            return Err(why);
                        }
                    }
                };
                let _at_work = AtWork::begin(programs);
                let running = started.run(body);
                let answer = match timeout {
                    None => running.await.map_err(|error| error.message().to_owned()),
                    Some(timeout) => match tokio::time::timeout(*timeout, running).await {
                        Ok(answer) => answer.map_err(|error| error.message().to_owned()),
                        Err(_) => Err(format!("the program ran for more than {timeout:?} and was killed")),
                    },
                };
                let answer = answer?;
                if !answer.is_empty() {
                    context.keep_result(answer);
                }
                Ok(())
            }
        });
        let of_readers = lines.clone();
        let worker = observed_by(worker, move |event| of_readers.event(event));
        let mut worker = worker.readers(self.readers.into());
        if self.activated {
            worker = worker.activated();
        }
        if let Some(job_type) = &self.job_type {
            worker = worker.job_type(job_type.as_str());
        }
        if let Some(name) = &self.name {
            worker = worker.name(name.as_str());
        }
        let running = worker.start();
        self.say_what_it_waits_for(&broker, output);
        let failed = tokio::select! {
            () = interrupt.requested() => None,
            error = broker.failed() => Some(error),
            () = self.say_when_it_is_dropped(&broker, &lines) => None,
        };
        if !output.json && at_work.load(SeqCst) > 0 {
            lines.note("waiting for the programs that run; ctrl-C again kills them");
        }
        let unreported = running.done().unreported;
        let _ = stop.send(true);
        let done = tokio::select! {
            done = running.stop() => Some(done),
            () = interrupt.requested_times(2) => None,
        };
        drop(lines);
        if done.is_some() {
            written.wait().await;
        }
        if let (true, Some(done)) = (output.json, &done) {
            let WorkDone { completed, failed, lost, unreported, .. } = done;
            let counts = json!({
                "event": "stopped", "completed": completed, "failed": failed, "lost": lost, "unreported": unreported
            });
            say_event(output, &counts);
        }
        let closed = broker.close().await;
        if let Some(error) = failed {
            return Err(error.into());
        }
        Err(match done {
            None => Failure::Interrupted(
                "stopped at once: the jobs in hand are given back when their leases are over".into(),
            ),
            Some(done) if done.unreported > unreported => Failure::Refused(Error::new(
                Code::COMMIT_UNKNOWN,
                format!(
                    "whether {} is reported as ended is not known; what is not comes back when its lease is over",
                    counted(done.unreported - unreported, "job")
                ),
            )),
            Some(_) if let Err(error) = closed => error.into(),
            Some(done) => interrupt.after_the_work(format!(
                "stopped: {} completed, {} failed, {} lost",
                counted(done.completed, "job"),
                done.failed,
                done.lost
            )),
        })
    }
}

impl Run {
    fn say_what_it_waits_for(&self, broker: &Broker, output: &Output) {
        let Self { queue, readers, .. } = self;
        let is_paused = broker.catalog().work_queue(queue).is_some_and(|queue| !queue.settings.is_enabled);
        if output.json {
            let waiting = json!({ "event": "waiting", "queue": queue, "readers": readers, "is_paused": is_paused });
            return say_event(output, &waiting);
        }
        let queue = printable_name(queue);
        let up_to = match (readers, self.activated) {
            (1, false) => "1 reader".to_owned(),
            (readers, false) => format!("{readers} readers"),
            (1, true) => "1 reader, started while there are jobs".to_owned(),
            (readers, true) => format!("at most {readers} readers, started while there are jobs"),
        };
        output.note(&format!("waiting for jobs in work queue '{queue}', {up_to}; ctrl-C ends"));
        if is_paused {
            output.note(&super::paused(&self.queue));
        }
    }
}

impl Run {
    /// Warns when the work queue is dropped, once each time; never returns. The readers wait until it is there again.
    async fn say_when_it_is_dropped(&self, broker: &Broker, lines: &Lines) {
        let mut was_there = true;
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let is_there = broker.catalog().work_queue(&self.queue).is_some();
            if was_there && !is_there {
                let queue = printable_name(&self.queue);
                lines.warning(format!("work queue '{queue}' was dropped; its jobs are taken once it is made again"));
            }
            was_there = is_there;
        }
    }
}

/// The pause before a start that failed is tried again.
const PAUSE: Duration = Duration::from_secs(5);
/// How often the definitions are asked whether the work queue is there.
const CHECK_EVERY: Duration = Duration::from_secs(1);

fn environment(context: &Context) -> Vec<(&'static str, String)> {
    let job = &context.job;
    vec![
        ("DIALOQ_QUEUE", job.queue.to_string()),
        ("DIALOQ_JOB", job.taken.job.to_string()),
        ("DIALOQ_TOKEN", job.taken.token.to_string()),
        ("DIALOQ_JOB_TYPE", job.job_type.to_string()),
        ("DIALOQ_JOB_KEY", job.key.as_deref().unwrap_or_default().to_owned()),
        ("DIALOQ_ATTEMPT", job.attempt.to_string()),
    ]
}
