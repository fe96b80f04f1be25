//! Work queues and work schedules by builder.

use super::{list, made};
use crate::catalog::ddl;
use crate::define::{Definitions, Level, missing};
use crate::error::Code;
use crate::protocol::definition::{Definition, Missed, TakingTechnique, WorkNumber, WorkOrder};
use std::time::Duration;

fn office(d: &mut Definitions) {
    d.work_queue("mail").order(WorkOrder::Priority).max_attempts(3).retry_delay(Duration::from_secs(2)).history(false);
    d.work_queue("films").lease(Duration::from_secs(600)).max_taken(8).max_taken_per_key(1).status(false);
    d.work_queue("parts").take_by(TakingTechnique::AppLock);
    d.work_schedule("nightly", "mail", "0 3 * * *").time_zone("Europe/Berlin").missed(Missed::Skip).job_type("report");
    d.work_schedule("often", "films", "@hourly").job_key("k").level(Level::HIGHEST).body("b").status(false);
}

#[test]
fn the_builder_makes_the_work_definitions_of_the_text() {
    let script = "
        CREATE WORK QUEUE mail WITH ORDER = PRIORITY, MAX_ATTEMPTS = 3, RETRY_DELAY_MS = 2000, HISTORY = OFF;
        CREATE WORK QUEUE films WITH LEASE_MS = 600000, MAX_TAKEN = 8, MAX_TAKEN_PER_KEY = 1, STATUS = OFF;
        CREATE WORK QUEUE parts WITH TAKE_BY = APPLOCK;
        CREATE WORK SCHEDULE nightly ON WORK QUEUE mail WITH CRON = '0 3 * * *', TIME_ZONE = 'Europe/Berlin', MISSED = SKIP,
            JOB_TYPE = 'report';
        CREATE WORK SCHEDULE often ON WORK QUEUE dbo.films WITH BODY = 'b', STATUS = OFF, LEVEL = 10, JOB_KEY = 'k',
            CRON = '@hourly';
        ALTER WORK QUEUE parts WITH TAKE_BY = DEFAULT; ALTER WORK QUEUE mail WITH RATE_JOBS = 5; DROP WORK QUEUE mail;
        ALTER WORK SCHEDULE often WITH CRON = '@daily'; DROP WORK SCHEDULE often";
    let read: Vec<Definition> = ddl::parse(script).unwrap().into_iter().map(|read| read.definition).collect();
    let built = list(|d| {
        office(d);
        d.alter_work_queue("parts").take_by(TakingTechnique::Default);
        d.alter_work_queue("mail").number(WorkNumber::RateJobs, 5).drop_work_queue("mail");
        d.alter_work_schedule("often").cron("@daily").drop_work_schedule("often");
    });
    assert_eq!(built, read);
    let rendered: String = built.iter().map(ddl::render_definition).collect();
    let again: Vec<Definition> = ddl::parse(&rendered).unwrap().into_iter().map(|read| read.definition).collect();
    assert_eq!(again, built, "{rendered}");
    let catalog = made(&list(office));
    let script = ddl::render(&catalog);
    let copy: Vec<Definition> = ddl::parse(&script).unwrap().into_iter().map(|read| read.definition).collect();
    assert_eq!(ddl::render(&made(&copy)), script);
}

#[test]
fn work_definitions_that_exist_are_not_missing() {
    let wanted = list(office);
    let catalog = made(&wanted);
    assert_eq!(missing(&catalog, &wanted).unwrap(), []);
    let loose = list(|d| {
        d.work_queue("MAIL").work_schedule("NIGHTLY", "MAIL", "0 3 * * *").time_zone("europe/berlin");
        d.work_queue("new");
    });
    let new = list(|d| _ = d.work_queue("new"));
    assert_eq!(missing(&catalog, &loose).unwrap(), new, "only what is named is compared");
}

/// A value that is set twice, as over a default, was refused at the second start: the queue differed from the first value.
#[test]
fn the_last_value_of_an_option_counts() {
    let wanted = list(|d| {
        let films = d.work_queue("films").max_attempts(5).lease(Duration::from_secs(9)).order(WorkOrder::Fifo);
        films.max_attempts(10).order(WorkOrder::Lifo).history(true).history(false);
    });
    let once = list(|d| {
        _ = d.work_queue("films").lease(Duration::from_secs(9)).max_attempts(10).order(WorkOrder::Lifo).history(false);
    });
    assert_eq!(wanted, once);
    assert_eq!(missing(&made(&wanted), &wanted).unwrap(), []);
}

#[test]
fn a_differing_work_definition_is_refused_by_its_option() {
    let catalog = made(&list(office));
    type Build = fn(&mut Definitions);
    let cases: [(&str, Build); 12] = [
        ("MAX_ATTEMPTS", |d| _ = d.work_queue("mail").max_attempts(4)),
        ("ORDER", |d| _ = d.work_queue("films").order(WorkOrder::Lifo)),
        ("HISTORY", |d| _ = d.work_queue("mail").history(true)),
        ("TAKE_BY", |d| _ = d.work_queue("parts").take_by(TakingTechnique::Cte)),
        ("its work queue", |d| _ = d.work_schedule("nightly", "films", "0 3 * * *")),
        ("CRON", |d| _ = d.work_schedule("nightly", "mail", "0 4 * * *")),
        ("TIME_ZONE", |d| _ = d.work_schedule("nightly", "mail", "0 3 * * *").time_zone("UTC")),
        ("MISSED", |d| _ = d.work_schedule("nightly", "mail", "0 3 * * *").missed(Missed::All)),
        ("JOB_TYPE", |d| _ = d.work_schedule("nightly", "mail", "0 3 * * *").job_type("x")),
        ("JOB_KEY", |d| _ = d.work_schedule("nightly", "mail", "0 3 * * *").job_key("x")),
        ("LEVEL", |d| _ = d.work_schedule("nightly", "mail", "0 3 * * *").level(Level::LOWEST)),
        ("BODY", |d| _ = d.work_schedule("nightly", "mail", "0 3 * * *").body("x")),
    ];
    for (named, build) in cases {
        let error = missing(&catalog, &list(build)).unwrap_err();
        assert_eq!(error.code(), Code::DUPLICATE_NAME, "{error}");
        assert!(error.message().contains(named), "{named}: {error}");
    }
}
