-- The tables of a broker. Every table of Dialoq is called dialoq_*, so that the user's own tables can have any other name.
-- Ids are the 16 bytes of a UUID, times are microseconds of UTC since 1970-01-01.

-- One row: the settings, and the marks at or above which no number was ever given out.
CREATE TABLE dialoq_broker (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    service_broker_guid BLOB NOT NULL,
    is_broker_enabled INTEGER NOT NULL,
    is_honor_broker_priority_on INTEGER NOT NULL,
    next_object_id INTEGER NOT NULL,
    next_queuing_order INTEGER NOT NULL,
    next_endpoint_id INTEGER NOT NULL,
    next_transmission_id INTEGER NOT NULL
) STRICT;

CREATE TABLE dialoq_message_type (
    message_type_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT,
    validation TEXT NOT NULL,
    xml_schema_collection TEXT,
    json_schema TEXT,
    is_dropped INTEGER NOT NULL
) STRICT;

CREATE TABLE dialoq_service_contract (
    service_contract_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT,
    is_dropped INTEGER NOT NULL
) STRICT;

CREATE TABLE dialoq_service_contract_message_usage (
    service_contract_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    message_type TEXT NOT NULL,
    is_sent_by_initiator INTEGER NOT NULL,
    is_sent_by_target INTEGER NOT NULL,
    PRIMARY KEY (service_contract_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE dialoq_service_queue (
    queue_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    is_receive_enabled INTEGER NOT NULL,
    is_enqueue_enabled INTEGER NOT NULL,
    is_retention_enabled INTEGER NOT NULL,
    is_poison_message_handling_enabled INTEGER NOT NULL,
    is_poison_quarantine_enabled INTEGER NOT NULL,
    is_activation_enabled INTEGER,
    activation_procedure TEXT,
    max_queue_readers INTEGER,
    execute_as TEXT,
    execute_as_user TEXT
) STRICT;

CREATE TABLE dialoq_service (
    service_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    owner TEXT,
    queue_id INTEGER NOT NULL
) STRICT;

CREATE TABLE dialoq_service_contract_usage (
    service_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    service_contract_id INTEGER NOT NULL,
    PRIMARY KEY (service_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE dialoq_conversation_priority (
    priority_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    service_contract_id INTEGER,
    local_service_id INTEGER,
    remote_service_name TEXT,
    priority INTEGER NOT NULL
) STRICT;

CREATE TABLE dialoq_xml_schema_collection (
    xml_collection_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    schemas TEXT NOT NULL
) STRICT;

CREATE TABLE dialoq_event_notification (
    event_notification_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    queue_id INTEGER NOT NULL,
    event TEXT NOT NULL,
    service TEXT NOT NULL,
    conversation_handle BLOB NOT NULL
) STRICT;

-- No secondary index: the broker finds endpoints in memory and comes here by key only.
CREATE TABLE dialoq_conversation_endpoint (
    endpoint_id INTEGER PRIMARY KEY,
    conversation_handle BLOB NOT NULL,
    conversation_id BLOB NOT NULL,
    conversation_group_id BLOB NOT NULL,
    service_id INTEGER NOT NULL,
    service_contract_id INTEGER NOT NULL,
    is_initiator INTEGER NOT NULL,
    far_service TEXT NOT NULL,
    far_broker_instance TEXT,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    lifetime INTEGER NOT NULL,
    dialog_timer INTEGER,
    security_timestamp INTEGER,
    send_sequence INTEGER NOT NULL,
    receive_sequence INTEGER NOT NULL,
    end_dialog_sequence INTEGER,
    is_system INTEGER NOT NULL,
    is_quarantined INTEGER NOT NULL,
    begun_at INTEGER NOT NULL
) STRICT;

-- How far an endpoint has received once its rows are gone: narrow, because it is written far more often than the endpoint.
CREATE TABLE dialoq_receive_sequence (
    endpoint_id INTEGER PRIMARY KEY,
    receive_sequence INTEGER NOT NULL
) STRICT;

-- All queues, in order of arrival: what is sent together lies on the same few pages at the right edge.
-- No secondary index: which rows a conversation has is known in memory, so every read and delete is by key.
CREATE TABLE dialoq_queue_message (
    queuing_order INTEGER PRIMARY KEY,
    endpoint_id INTEGER NOT NULL,
    stored INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    message_type_id INTEGER NOT NULL,
    message_id BLOB NOT NULL,
    enqueued_at INTEGER NOT NULL,
    body BLOB,
    trace TEXT
) STRICT;

-- RETENTION: status 0 was received, status 3 was sent; kept until the conversation ends.
CREATE TABLE dialoq_retained_message (
    endpoint_id INTEGER NOT NULL,
    queuing_order INTEGER NOT NULL,
    status INTEGER NOT NULL,
    stored INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    message_type_id INTEGER NOT NULL,
    message_id BLOB NOT NULL,
    enqueued_at INTEGER NOT NULL,
    body BLOB,
    trace TEXT,
    PRIMARY KEY (endpoint_id, queuing_order)
) STRICT, WITHOUT ROWID;

CREATE TABLE dialoq_transmission (
    transmission_id INTEGER PRIMARY KEY,
    endpoint_id INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    message_type_id INTEGER NOT NULL,
    is_conversation_error INTEGER NOT NULL,
    is_end_of_dialog INTEGER NOT NULL,
    message_id BLOB NOT NULL,
    enqueued_at INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    body BLOB,
    trace TEXT,
    status TEXT NOT NULL
) STRICT;

-- What the owner of the file tells other processes about its readers; emptied when the file is opened.
CREATE TABLE dialoq_queue_monitor (
    monitor_id INTEGER PRIMARY KEY,
    queue_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    last_empty_rowset_time INTEGER,
    last_activated_time INTEGER,
    tasks_waiting INTEGER NOT NULL,
    max_queue_readers INTEGER NOT NULL,
    tasks_running INTEGER NOT NULL,
    tasks_started_total INTEGER NOT NULL,
    tasks_aborted_total INTEGER NOT NULL,
    task_limit_reached_total INTEGER NOT NULL,
    activation_errors_total INTEGER NOT NULL,
    process_id INTEGER NOT NULL,
    reported_at INTEGER NOT NULL
) STRICT;

CREATE TABLE dialoq_activated_task (
    spid INTEGER PRIMARY KEY,
    monitor_id INTEGER NOT NULL,
    queue_id INTEGER NOT NULL,
    procedure_name TEXT NOT NULL,
    process_id INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) STRICT;
