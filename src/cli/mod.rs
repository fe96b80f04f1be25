//! The command `dialoq`.
//!
//! One file per subcommand. Results go to standard output, as tables for people or as JSON with `--json`; errors,
//! progress and notes go to standard error.

mod activate;
mod apply;
mod bench;
mod confirm;
mod dead;
mod deliveries;
mod doctor;
mod dump;
mod end;
mod explain;
mod failure;
mod globals;
mod install;
mod interrupt;
mod lab;
mod lines;
mod many;
mod move_to;
mod obstacles;
mod output;
mod pause;
mod peek;
mod purge;
mod read_ahead;
mod receive;
mod release;
mod reprioritise;
mod send;
mod show;
mod status;
mod suggest;
mod timer;
mod waits;
mod work;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::{Failure, command_line};
use globals::Globals;
pub(crate) use interrupt::Interrupt;
use output::{Output, printable, takes_colours, without_passwords};
use std::io::{self, Write};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::RwLock;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// A priority messaging broker with the semantics of SQL Server Service Broker, over SQL tables.
#[derive(Debug, Parser)]
#[command(name = "dialoq", version, propagate_version = true, max_term_width = 110, after_long_help = OVERVIEW)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// The threads of the command besides those of its runtime: they open, check, write, print, answer other processes and read input.
const OTHER_THREADS: usize = 6;

const OVERVIEW: &str = "\
Examples:
  dialoq apply shop.sql
  dialoq send --from //shop/Checkout --to //shop/OrderService --contract //shop/Orders \\
              --type //shop/PlaceOrder '{\"sku\":\"A-1\"}'
  dialoq receive orders
  dialoq activate orders --exec ./worker --max-queue-readers 4
  dialoq work push emails '{\"to\":\"ann@example.org\"}'
  dialoq status --watch
  dialoq explain orders

Exit codes:
  0    done; activate, work run: SIGTERM has stopped it, and what was in hand is finished
  1    refused or failed; standard error says why
  2    the command line was not understood
  3    receive, peek, purge, dead and others: there is none (in time), standard output is empty;
       doctor: there is a finding
  4    send: committed, but the broker has refused messages; the output says which and why
  5    send: committed, but messages wait for what looks like a mistake, such as a service that
       does not exist
  6    a change of many was previewed and not confirmed
  130  interrupted by ctrl-C: what was reported is done; what standard error names as under way
       may have been done, nothing else is

With --json:
  A list is one object a line, and no line if it is empty. Other commands print one object.
  A change of many prints its preview, or with --yes what was done. Times are UTC text with
  milliseconds: 2026-01-01T00:00:00.000Z.

Environment:
  DIALOQ_URL   the broker's database, as --db; empty is as not set
  DIALOQ_LOG   what is logged to standard error (default: nothing): 'dialoq=warn' what is odd,
               'dialoq=debug' each call with its time";

#[derive(Debug, Subcommand)]
enum Command {
    Apply(apply::Apply),
    Dump(dump::Dump),
    Send(send::Send),
    Receive(receive::Receive),
    End(end::End),
    Activate(activate::Activate),
    Status(status::Status),
    Peek(peek::Peek),
    Show(show::Show),
    Explain(explain::Explain),
    Doctor(doctor::Doctor),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Release(release::Release),
    Reprioritise(reprioritise::Reprioritise),
    Timer(timer::Timer),
    Move(move_to::Move),
    Purge(purge::Purge),
    Dead(dead::Dead),
    Work(work::Work),
    Install(install::Install),
    Uninstall(install::Uninstall),
    Lab(lab::Lab),
    Bench(bench::Bench),
    Completions(Completions),
}

/// Print shell completions.
///
/// Source what it prints from your shell's start-up file, or put it where the shell looks for completions.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  dialoq completions bash > ~/.local/share/bash-completion/completions/dialoq
  dialoq completions zsh > ~/.zfunc/_dialoq")]
struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

/// The longest wait for the end of what a command has left open.
const LONGEST_CLOSE: Duration = Duration::from_secs(1);

/// Runs the command with the arguments of this process.
pub(crate) fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return refuse_command_line(&error),
    };
    let output = Output::new(cli.globals.json);
    match log_filter() {
        Ok(None) => {}
        Ok(Some(filter)) => {
            // A call is logged when it ends, with how long it took.
            let log = tracing_subscriber::fmt().with_env_filter(filter).with_span_events(FmtSpan::CLOSE);
            log.with_ansi(takes_colours(&std::io::stderr())).with_writer(std::io::stderr).init();
        }
        Err(failure) => return failure.report(&output),
    }
    if let Err(error) = try_threads() {
        let why = format!("the system starts no more threads for this user: {error}; raise its limit (ulimit -u)");
        return Failure::input(why).report(&output);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::input(format!("the runtime cannot be started: {error}")).report(&output),
    };
    let done = runtime.block_on(run(&cli, &output));
    // A command that fails leaves its broker open: a server would write an error into its log for each connection.
    let _ = runtime.block_on(async { tokio::time::timeout(LONGEST_CLOSE, cli.globals.close()).await });
    // What still runs is dropped, programs of readers are killed with it; a thread that reads standard input would never
    // end, so it is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    interrupt::kill_programs();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let failure = suggest::with_names(failure, &cli.globals);
            interrupt::ends_at_once();
            failure.report(&output)
        }
    }
}

/// Reads the command line. A variable that is empty counts as not set, as it does for most programs.
fn parse() -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    if std::env::var_os("DIALOQ_URL").is_some_and(|url| url.is_empty()) {
        command = command.mut_arg("db", |db| db.env(None::<&str>));
    }
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Starts as many threads as the command may need at once, and ends them. Without this a limit made it wait for ever: the
/// runtime keeps work for a thread that cannot be started, and all its threads are in use.
fn try_threads() -> io::Result<()> {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let gate = RwLock::new(());
    std::thread::scope(|scope| {
        let _closed = gate.write();
        let start = || std::thread::Builder::new().spawn_scoped(scope, || drop(gate.read())).map(drop);
        (0..workers + OTHER_THREADS).try_for_each(|_| start())
    })
}

/// The filter of DIALOQ_LOG, if it is set.
fn log_filter() -> Result<Option<EnvFilter>, Failure> {
    let Some(value) = std::env::var_os("DIALOQ_LOG") else { return Ok(None) };
    let text = value.to_string_lossy();
    let filter = EnvFilter::try_new(&*text).map_err(|error| {
        Failure::input(format!(
            "DIALOQ_LOG is '{}', which is no filter of the log ({error}); use one like dialoq=debug",
            printable(&text)
        ))
    });
    filter.map(Some)
}

/// Prints help, or why the command line is not understood: without the passwords in it, and nothing a terminal would obey.
fn refuse_command_line(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let safe = without_passwords(&text);
    let safe = printable(&safe);
    // The arguments were not understood, so --json is looked for among them, before those of a program.
    let is_json = std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if is_json && error.use_stderr() {
        let message = safe.trim_start_matches("error: ").trim_end();
        Output::new(true).note(&command_line(message));
        return ExitCode::from(2);
    }
    if safe == text {
        // If the reader of the output is gone, nothing is printed.
        let _ = error.print();
    } else {
        let _ = std::io::stderr().lock().write_all(safe.as_bytes());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

async fn run(cli: &Cli, output: &Output) -> Result<(), Failure> {
    let mut interrupt = Interrupt::listen(output.json)?;
    output.stops_by(&interrupt)?;
    let globals = &cli.globals;
    match &cli.command {
        Command::Apply(command) if command.is_trial() => interrupt.stops(command.run(globals, output)).await,
        Command::Apply(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
        Command::Dump(command) => interrupt.stops(command.run(globals, output)).await,
        Command::Send(command) => command.run(globals, output, &mut interrupt).await,
        Command::Receive(command) => command.run(globals, output, &mut interrupt).await,
        Command::End(command) => command.run(globals, output, &interrupt).await,
        Command::Activate(command) => command.run(globals, output, &mut interrupt).await,
        Command::Work(command) => command.run(globals, output, &mut interrupt).await,
        Command::Status(command) if command.is_watch() => {
            match interrupt.unless_requested(command.run(globals, output)).await {
                Ok(_) | Err(Failure::NotRead) => Ok(()),
                Err(failure) => Err(failure),
            }
        }
        Command::Status(command) => interrupt.stops(command.run(globals, output)).await,
        Command::Peek(command) => interrupt.stops(command.run(globals, output)).await,
        Command::Show(command) => interrupt.stops(command.run(globals, output)).await,
        Command::Explain(command) => interrupt.stops(command.run(globals, output)).await,
        Command::Doctor(command) => interrupt.stops(command.run(globals, output)).await,
        Command::Pause(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
        Command::Resume(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
        Command::Release(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
        Command::Reprioritise(command) => command.run(globals, output, &interrupt).await,
        Command::Timer(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
        Command::Move(command) => interrupt.stops_command(globals, command.run(globals, output)).await,
        Command::Purge(command) => command.run(globals, output, &interrupt).await,
        Command::Dead(command) => command.run(globals, output, &interrupt).await,
        Command::Install(command) if command.is_trial() => interrupt.stops(command.run(globals, output)).await,
        Command::Install(command) => interrupt.stops_change(command.run(globals, output)).await,
        Command::Uninstall(command) => interrupt.stops_change(command.run(globals, output)).await,
        Command::Lab(command) => command.run(globals, output, &interrupt).await,
        Command::Bench(command) => command.run(globals, output, &interrupt).await,
        Command::Completions(Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "dialoq", &mut script);
            output.bytes(&script)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
