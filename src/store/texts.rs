//! The reads of `dialoq status` and of the doctor, which every database writes in its own dialect.

/// One text for each; they give the same columns everywhere, times as microseconds.
#[derive(Debug, Clone, Copy)]
pub struct StoreTexts {
    /// What `dialoq status` shows.
    pub status: StatusTexts,
    /// What [`Broker::doctor`](crate::Broker::doctor) looks for.
    pub doctor: DoctorTexts,
}

/// `status/*.sql`
#[derive(Debug, Clone, Copy)]
pub struct StatusTexts {
    /// The broker's own settings.
    pub broker: &'static str,
    /// Every queue with its readers.
    pub queues: &'static str,
    /// What waits in every queue, per level.
    pub levels: &'static str,
    /// How many endpoints each service has in each state.
    pub conversations: &'static str,
    /// What waits to be delivered, and why.
    pub transmission: &'static str,
}

/// `doctor/*.sql`
#[derive(Debug, Clone, Copy)]
pub struct DoctorTexts {
    /// Queues that give nothing out.
    pub disabled_queues: &'static str,
    /// Conversation groups that poison handling set aside.
    pub quarantined: &'static str,
    /// Conversations that nobody ended; the parameter is a moment.
    pub never_ended: &'static str,
    /// Messages that nobody receives; the parameter is a moment.
    pub waiting_messages: &'static str,
    /// Messages that cannot be delivered; the parameter is a moment.
    pub undelivered: &'static str,
    /// Conversations without LIFETIME; the parameter is a moment.
    pub without_lifetime: &'static str,
}

/// The texts below `sql/<dialect>/status` and `sql/<dialect>/doctor`.
macro_rules! store_texts {
    ($dialect:literal) => {
        $crate::store::StoreTexts {
            status: $crate::store::StatusTexts {
                broker: include_str!(concat!("../../../sql/", $dialect, "/status/broker.sql")),
                queues: include_str!(concat!("../../../sql/", $dialect, "/status/queues.sql")),
                levels: include_str!(concat!("../../../sql/", $dialect, "/status/levels.sql")),
                conversations: include_str!(concat!("../../../sql/", $dialect, "/status/conversations.sql")),
                transmission: include_str!(concat!("../../../sql/", $dialect, "/status/transmission.sql")),
            },
            doctor: $crate::store::DoctorTexts {
                disabled_queues: include_str!(concat!("../../../sql/", $dialect, "/doctor/disabled_queues.sql")),
                quarantined: include_str!(concat!("../../../sql/", $dialect, "/doctor/quarantined.sql")),
                never_ended: include_str!(concat!("../../../sql/", $dialect, "/doctor/never_ended.sql")),
                waiting_messages: include_str!(concat!("../../../sql/", $dialect, "/doctor/waiting_messages.sql")),
                undelivered: include_str!(concat!("../../../sql/", $dialect, "/doctor/undelivered.sql")),
                without_lifetime: include_str!(concat!("../../../sql/", $dialect, "/doctor/without_lifetime.sql")),
            },
        }
    };
}
pub(crate) use store_texts;
