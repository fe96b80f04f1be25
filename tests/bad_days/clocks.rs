//! Hosts whose clocks are wrong.

use crate::servers::Store;
use crate::{Database, SOON, TEXT, broker, dialog, on};
use dialoq::time::Clock;
use dialoq::{Act, Broker, OpenOptions};
use std::time::Duration;

const YEAR_SECONDS: i64 = 365 * 86_400;

pub(crate) fn a_host_whose_clock_is_wrong_changes_nothing() {
    on(async {
        let database = Database::fresh(Store::Postgres);
        let right = broker(database.url()).await?;
        for wrong_by in [YEAR_SECONDS, -YEAR_SECONDS] {
            let options = OpenOptions::default().clock(Clock::wrong_by(wrong_by));
            let wrong = Broker::open_with(database.url(), options).await?;
            // Begun here and there, neither has come to its end, whatever the other's clock says.
            let by_right =
                right.begin_dialog("Asker", "Server").contract("C").lifetime(Duration::from_secs(3600)).await?;
            let by_wrong =
                wrong.begin_dialog("Asker", "Server").contract("C").lifetime(Duration::from_secs(3600)).await?;
            right.timer(by_right, Duration::from_secs(1800)).await?;
            let soon = dialog(&wrong).await?;
            wrong.timer(soon, Duration::from_secs(1)).await?;
            // The timer that is due comes, by the server's clock, and nothing that is not.
            let batch = right.receive("asker").wait(SOON).await?.expect("a timer is due");
            assert_eq!((batch.len(), batch.first().handle()), (1, soon));
            for (broker, handle) in [(&wrong, by_right), (&right, by_wrong)] {
                broker.send(handle, TEXT, "still open").await?;
                let batch = broker.receive("server").wait(SOON).await?.expect("it was sent");
                assert_eq!(batch.first().decode(TEXT)?, "still open");
            }
            assert!(right.receive("asker").await?.is_none());
            wrong.close().await?;
        }
        Ok(())
    });
}
