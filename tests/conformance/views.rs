//! Views and counters.

use std::collections::HashSet;

case!(sequences_in_the_view, [226], async |t| {
    let pairs = [t.pair().await?, t.pair().await?];
    for number in 1..4 {
        t.send(pairs[0].initiator, "Text", &number.to_string()).await?;
    }
    t.send(pairs[1].target, "Text", "answer").await?;
    let endpoints = t.endpoints().await?;
    let keys: HashSet<_> = endpoints.iter().map(|endpoint| (endpoint.conversation_id, endpoint.is_initiator)).collect();
    assert_eq!(keys.len(), 4);
    let sequences = |handle| {
        let endpoint = endpoints.iter().find(|endpoint| endpoint.handle == handle).expect("the endpoint");
        (endpoint.send_sequence, endpoint.receive_sequence)
    };
    // Each pair has sent one message before.
    assert_eq!((sequences(pairs[0].initiator), sequences(pairs[0].target)), ((4, 0), (0, 4)));
    assert_eq!((sequences(pairs[1].initiator), sequences(pairs[1].target)), ((1, 1), (1, 1)));
    t.receive("QT").await?;
    t.receive("QI").await?;
    let t = t.restart().await?;
    let after = t.endpoints().await?;
    for (before, after) in endpoints.iter().zip(&after) {
        assert_eq!((before.send_sequence, before.receive_sequence), (after.send_sequence, after.receive_sequence));
    }
    t.send(pairs[0].initiator, "Text", "next").await?;
    assert_eq!(t.receive("QT").await?[0].message_sequence_number, 4, "and the numbers go on");
});

case!(waiting_ends_in_the_view, [227], async |t| {
    let (plain, error) = (t.pair().await?, t.pair().await?);
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.end(plain.initiator).await?;
    t.end_with_error(error.initiator, 4, "x").await?;
    let waiting = t.transmission().await?;
    let flags = |handle: dialoq::id::ConversationHandle| {
        let row = waiting.iter().find(|row| row.text("conversation_handle") == handle.to_string()).expect("it waits");
        (row.int("is_end_of_dialog"), row.int("is_conversation_error"))
    };
    assert_eq!((flags(plain.initiator), flags(error.initiator)), ((1, 0), (0, 1)));
});

case!(services_and_usages_in_the_views, [29, 226], async |t| {
    let services = t.view("services").await?;
    let service = services.iter().find(|row| row.text("name") == "T").expect("service T");
    assert_eq!(service.int("service_queue_id"), t.queue("QT").await?.int("object_id"));
    let usages = t.view("service_contract_usages").await?;
    let listed = usages.iter().filter(|row| row.int("service_id") == service.int("service_id")).count();
    assert_eq!(listed, 1);
    let ids: HashSet<i64> = services.iter().map(|row| row.int("service_id")).collect();
    assert_eq!(ids.len(), services.len());
    assert!(service.int("service_id") >= 65536);
});
