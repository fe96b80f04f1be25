//! Definitions that an application makes at every start.

use super::*;
use dialoq::define::Definitions;
use dialoq::{Broker, Code, Level};
use tokio::task::JoinSet;

fn shop(d: &mut Definitions) {
    d.message_type(NUMBER);
    d.contract("//shop/Orders").sent_by_initiator(NUMBER);
    d.queue("orders");
    d.service("//shop/OrderService", "orders", ["//shop/Orders"]);
    d.broker_priority("premium").contract("//shop/Orders").level(Level::new(9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_definers_agree_on_one_set_of_objects() {
    let _limit = crate::limit();
    let broker = TestBroker::in_memory().await.unwrap();
    let mut starts = JoinSet::new();
    for _ in 0..8 {
        let broker: Broker = broker.clone();
        starts.spawn(async move { broker.ensure(shop).await });
    }
    for start in starts.join_all().await {
        start.unwrap();
    }
    let catalog = broker.catalog();
    let queues = catalog.queues.values().filter(|queue| &*queue.name == "orders").count();
    assert_eq!((queues, catalog.priority("premium").unwrap().level), (1, 9));
    let before = broker.dump();
    broker.ensure(shop).await.unwrap();
    assert_eq!(broker.dump(), before);
}

#[tokio::test]
async fn a_different_definition_is_refused_and_nothing_changes() {
    let _limit = crate::limit();
    let broker = TestBroker::in_memory().await.unwrap();
    broker.ensure(shop).await.unwrap();
    let before = broker.dump();
    let error = broker
        .ensure(|d| {
            d.queue("returns");
            d.broker_priority("premium").contract("//shop/Orders").level(Level::new(8));
        })
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::DUPLICATE_NAME);
    assert!(error.message().contains("'premium'") && error.message().contains('8'), "{error}");
    assert_eq!(broker.dump(), before, "the queue was not made either");
    let error = broker
        .ensure(|d| {
            d.alter_queue("orders").status(false);
        })
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
}

#[tokio::test]
async fn a_schema_collection_may_be_spelled_in_another_case() {
    let _limit = crate::limit();
    let broker = TestBroker::in_memory().await.unwrap();
    let script = "CREATE XML SCHEMA COLLECTION Shop AS '<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\"/>';
                  CREATE MESSAGE TYPE t VALIDATION = VALID_XML WITH SCHEMA COLLECTION shop;";
    broker.ensure_script(script).await.unwrap();
    let before = broker.dump();
    broker.ensure_script(script).await.unwrap();
    assert_eq!(broker.dump(), before);
    let other = script.replace("COLLECTION shop", "COLLECTION shops");
    assert_eq!(broker.ensure_script(&other).await.unwrap_err().code(), Code::DUPLICATE_NAME);
}

/// The second time it was refused: the broker has ANY, and `[ANY]` was taken for a name.
#[tokio::test]
async fn the_wildcard_of_a_priority_may_be_in_brackets() {
    let _limit = crate::limit();
    let broker = TestBroker::in_memory().await.unwrap();
    let script = "CREATE BROKER PRIORITY p FOR CONVERSATION
                  SET (CONTRACT_NAME = [ANY], LOCAL_SERVICE_NAME = [ANY], REMOTE_SERVICE_NAME = 'there', PRIORITY_LEVEL = 7)";
    broker.ensure_script(script).await.unwrap();
    let before = broker.dump();
    broker.ensure_script(script).await.unwrap();
    assert_eq!(broker.dump(), before);
    let other = script.replace("[ANY], LOCAL", "[DEFAULT], LOCAL");
    assert_eq!(broker.ensure_script(&other).await.unwrap_err().code(), Code::DUPLICATE_NAME);
}

#[tokio::test]
async fn a_list_that_contradicts_itself_is_refused() {
    let _limit = crate::limit();
    let broker = TestBroker::in_memory().await.unwrap();
    let twice = broker.ensure(|d| {
        d.queue("q").queue("Q");
    });
    let error = tokio::time::timeout(SOON, twice).await.expect("it waits for no lock").unwrap_err();
    assert_eq!(error.code(), Code::DUPLICATE_NAME);
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_by_define() {
    let _limit = crate::limit();
    let broker = TestBroker::in_memory().await.unwrap();
    broker.define(shop).await.unwrap();
    assert_eq!(broker.define(shop).await.unwrap_err().code(), Code::DUPLICATE_NAME);
}

#[tokio::test]
async fn a_dump_recreates_the_same_broker() {
    let _limit = crate::limit();
    let broker = TestBroker::in_memory().await.unwrap();
    broker.define(shop).await.unwrap();
    let copy = TestBroker::in_memory().await.unwrap();
    copy.execute(&broker.dump()).await.unwrap();
    assert_eq!(copy.dump(), broker.dump());
}
