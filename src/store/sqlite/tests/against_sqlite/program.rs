//! Random actions of open transactions, and the tables that they work on.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, prop_oneof};
use std::collections::HashSet;

/// The places of the open transactions are those below this one. It is that of work outside a transaction.
pub(super) const OUTSIDE: usize = 3;

pub(super) const TABLES: [&str; 16] = [
    "create table t (id integer primary key, a int default 0, b text unique, c int check (c < 50))",
    "create table later (id integer primary key autoincrement, t references t (id) deferrable initially deferred, v)",
    "create table child (id integer primary key, t references t (id) on delete cascade on update set null)",
    "create table k (k text primary key, n int) without rowid",
    "create table g (x int, y int generated always as (x * 2) stored, z as (x + 1) virtual)",
    "create index g_y on g (y)",
    "create unique index g_z on g (z) where z > 3",
    "create table log (id integer primary key, what, n)",
    "create trigger t_insert after insert on t begin insert into log (what, n) values ('insert', new.id); end",
    "create trigger t_update after update of a on t when new.a % 3 = 0 begin
         insert into log (what, n) values ('update', new.id); update k set n = n + 1 where k = 'k1'; end",
    "create trigger t_delete before delete on t when old.a = 5 begin select raise(abort, 'five'); end",
    "create trigger g_insert before insert on g when new.x between 7 and 9 begin
         select case new.x when 7 then raise(ignore) when 8 then raise(fail, 'eight') else raise(abort, 'nine') end; end",
    "create view v as select id, a, b from t",
    "create trigger v_insert instead of insert on v begin
         insert or replace into t (id, a, b) values (new.id, new.a, new.b);
         insert into k values ('v' || new.id, 1) on conflict (k) do update set n = n + 1; end",
    "create virtual table ft using fts5(body)",
    "insert into k values ('k0', 0), ('k1', 1)",
];

/// What happens at one place.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Run { text: String, expected_rows: Option<u64> },
    Query(String),
    Send,
    Savepoint(u8),
    RollBackTo(u8),
    Commit,
    RollBack,
    Drop,
}

fn statement() -> impl Strategy<Value = String> {
    let conflict = prop_oneof![
        4 => Just(""), 1 => Just("or ignore"), 1 => Just("or replace"), 1 => Just("or fail"), 1 => Just("or rollback")
    ];
    (0..44_u8, conflict, 0..5_u8, 0..5_u8, 0..12_u8, 0..3_u8).prop_map(|(kind, or, id, other, v, k)| match kind {
        0..=4 => format!("insert {or} into t (id, a, b, c) values ({id}, {v}, 'b{other}', {})", v * 5),
        5 => format!("insert {or} into t (a, b) values ({v}, 'b{other}'), ({id}, 'b{id}')"),
        6..=7 => format!("update {or} t set a = a + 1 where id between {id} and {}", id + other),
        8..=9 => format!("delete from t where id = {id}"),
        10 => "delete from t".to_owned(),
        11 => format!("insert into t (id, a) values ({id}, {v}) on conflict (id) do update set a = a + excluded.a"),
        12 => format!("update {or} t set id = id + 1 where id > {id}"),
        13 => format!("update t set b = (select max(k) from k) where id = {id}"),
        14..=15 => format!("insert into later (t, v) values ({id}, {v})"),
        16 => format!("delete from later where t = {id}"),
        17 => format!("insert into child (t) values ({id})"),
        18..=19 => format!("insert {or} into k values ('k{k}', {v})"),
        20 => format!("update k set n = n + 1 where k = 'k{k}'"),
        21 => format!("insert into k select 'k' || id, a from t where a > {v} on conflict (k) do nothing"),
        22 => format!("delete from k where n > {v}"),
        23..=24 => format!("insert {or} into g (x) values ({v}), ({})", id + other),
        25 => format!("update {or} g set x = x + 1 where x < {v}"),
        26 => format!("delete from g where x = {v}"),
        27 => format!("insert into v values ({id}, {v}, 'b{other}')"),
        28 => "insert into log (what, n) select 'sum', total(a) from t".to_owned(),
        29 => format!("insert into ft (body) values ('w{k} w{v}')"),
        30 => format!("delete from ft where ft match 'w{v}'"),
        31 => "insert into ft (ft) values ('optimize')".to_owned(),
        32 => format!("create table if not exists d{k} (x)"),
        33 => format!("drop table if exists d{k}"),
        34 => format!("alter table d{k} add column c{v}"),
        35 => format!("alter table d{k} rename to d{}", (k + 1) % 3),
        36 => format!("insert into d{k} (x) values ({v})"),
        37 => format!("create index if not exists i{k} on k (n, k)"),
        38 => format!("drop index if exists i{k}"),
        39..=40 => format!(
            "create trigger if not exists r{k} after insert on k begin update t set a = a + 2 where id = {k}; end"
        ),
        41..=42 => format!("drop trigger if exists r{k}"),
        _ => "reindex".to_owned(),
    })
}

fn query() -> impl Strategy<Value = String> {
    (0..8_u8, 0..5_u8, 0..12_u8, 0..3_u8).prop_map(|(kind, id, v, k)| match kind {
        0 => "select count(*), sum(a), max(b) from t".to_owned(),
        1 => "select * from k order by k".to_owned(),
        2 => format!("select x, y, z from g where x > {v} order by x"),
        3 => "select rowid, body from ft order by rowid".to_owned(),
        4 => format!("insert into t (id, a, b) values ({id}, {v}, 'b{v}') returning id, a, b"),
        5 => format!("update k set n = n + 1 where k = 'k{k}' returning n"),
        6 => format!("select rowid from ft where ft match 'w{k}' order by rowid"),
        _ => format!("delete from t where id = {id} returning *"),
    })
}

fn run() -> impl Strategy<Value = Action> {
    let expected_rows = prop_oneof![3 => Just(None), 1 => (0..3_u64).prop_map(Some)];
    (statement(), expected_rows).prop_map(|(text, expected_rows)| Action::Run { text, expected_rows })
}

/// One action, or several that wait for the writer together: then their commits are in one batch, in this order.
pub(super) fn step() -> impl Strategy<Value = Vec<(usize, Action)>> {
    let any_action = prop_oneof![
        12 => run(),
        3 => query().prop_map(Action::Query),
        1 => Just(Action::Send),
        2 => (0..2_u8).prop_map(Action::Savepoint),
        2 => (0..2_u8).prop_map(Action::RollBackTo),
        2 => Just(Action::Commit),
        1 => prop_oneof![Just(Action::RollBack), Just(Action::Drop)],
    ];
    let waiting = prop_oneof![4 => run(), 3 => Just(Action::Commit), 1 => Just(Action::Send)];
    let together = vec((0..=OUTSIDE, waiting), 2..6).prop_map(|mut actions| {
        let mut places = HashSet::new();
        actions.retain(|(place, _)| places.insert(*place));
        actions
    });
    prop_oneof![1 => (0..=OUTSIDE, any_action).prop_map(|action| vec![action]), 1 => together]
}
