-- Messages that a retry policy has taken out of their queue. Names and ids are those of the moment of death: the objects may be gone.
CREATE TABLE dialoq_dead_letter (
    queuing_order INTEGER PRIMARY KEY,
    endpoint_id INTEGER NOT NULL,
    delivery_class INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    queue_name TEXT NOT NULL,
    service_name TEXT NOT NULL,
    far_service_name TEXT NOT NULL,
    service_contract_name TEXT NOT NULL,
    conversation_handle BLOB NOT NULL,
    conversation_id BLOB NOT NULL,
    conversation_group_id BLOB NOT NULL,
    priority INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    died_at INTEGER NOT NULL,
    reason TEXT,
    message_type_id INTEGER NOT NULL,
    message_id BLOB NOT NULL,
    enqueued_at INTEGER NOT NULL,
    body BLOB,
    trace TEXT
) STRICT;
