//! QUEUE_ACTIVATION notifications (5.7).

use crate::stage::{FIVE_SECONDS, Stage, soon, until};
use dialoq::Act;

const NOTIFY: &str = "
    CREATE QUEUE events;
    CREATE SERVICE listener ON QUEUE events ([http://schemas.microsoft.com/SQL/Notifications/PostEventNotification]);
    CREATE EVENT NOTIFICATION first ON QUEUE work FOR QUEUE_ACTIVATION TO SERVICE 'listener', 'current database';";

async fn event(stage: &Stage) -> String {
    let batch = soon("the event", stage.receive("events").wait_forever().into_future()).await.unwrap().unwrap();
    batch.first().text().unwrap().into_owned()
}

// assertions: 202
staged!(one_event_until_a_receive_or_the_time_out, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl(NOTIFY).await;
    let procedures = stage.procedures().start();
    until("the monitor", || stage.queue_monitors().len() == 1).await;
    stage.arrive(1).await;
    assert!(event(&stage).await.contains("work"));
    stage.arrive(3).await;
    assert_eq!(stage.queue_monitors()[0].state, "NOTIFIED");
    assert!(stage.receive("events").await.unwrap().is_none());
    stage.advance(FIVE_SECONDS);
    event(&stage).await;
    while stage.receive("work").await.unwrap().is_some() {}
    until("the monitor at rest", || stage.queue_monitors()[0].state == "INACTIVE").await;
    assert!(stage.receive("events").await.unwrap().is_none());
    stage.arrive(1).await;
    event(&stage).await;
    procedures.stop().await;
});

// assertions: 203
staged!(every_notification_of_a_queue_gets_the_event, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl(NOTIFY).await;
    stage
        .ddl("CREATE EVENT NOTIFICATION second ON QUEUE work FOR QUEUE_ACTIVATION TO SERVICE 'listener', 'current database'")
        .await;
    let _procedures = stage.procedures().start();
    stage.arrive(1).await;
    event(&stage).await;
    event(&stage).await;
    assert!(stage.receive("events").await.unwrap().is_none());
});
