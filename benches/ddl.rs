//! What definitions as text cost: reading a script, and writing it again.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dialoq::catalog::ddl::{parse, render_definition};
use std::fmt::Write;

/// A hundred services with all that belongs to them.
fn script() -> String {
    let mut script = String::new();
    for number in 0..100 {
        write!(
            script,
            "-- service {number}
             CREATE MESSAGE TYPE [//shop/Order{number}] VALIDATION = WELL_FORMED_XML;
             CREATE CONTRACT [//shop/Orders{number}] ([//shop/Order{number}] SENT BY INITIATOR, [DEFAULT] SENT BY ANY);
             CREATE QUEUE \"orders {number}\" WITH STATUS = ON, RETENTION = OFF, POISON_MESSAGE_HANDLING (STATUS = ON);
             CREATE SERVICE [//shop/Service{number}] ON QUEUE \"orders {number}\" ([//shop/Orders{number}]);
             CREATE BROKER PRIORITY p{number} FOR CONVERSATION
                 SET (CONTRACT_NAME = [//shop/Orders{number}], LOCAL_SERVICE_NAME = ANY, PRIORITY_LEVEL = 7);
             GO
             "
        )
        .expect("writing to a string cannot fail");
    }
    script
}

fn ddl(criterion: &mut Criterion) {
    let script = script();
    let mut group = criterion.benchmark_group("ddl");
    group.throughput(Throughput::Bytes(script.len() as u64));
    group.bench_function("parse", |bencher| bencher.iter(|| parse(&script).expect("the script is right")));
    let statements = parse(&script).expect("the script is right");
    group.bench_function("render", |bencher| {
        bencher.iter(|| {
            let texts = statements.iter().map(|statement| render_definition(&statement.definition));
            texts.collect::<String>()
        });
    });
    group.finish();
}

criterion_group!(benches, ddl);
criterion_main!(benches);
