-- The tables of a broker. Nobody but the functions of this schema touches them.
-- Times are UTC. What is written for every message is kept narrow and has as few indexes as it can be found by.

-- One row: the settings, and the version that every change of a definition raises.
CREATE TABLE dialoq.broker (
    singleton integer PRIMARY KEY CHECK (singleton = 1),
    service_broker_guid uuid NOT NULL,
    is_broker_enabled boolean NOT NULL,
    is_honor_broker_priority_on boolean NOT NULL,
    next_object_id integer NOT NULL,
    catalog_version bigint NOT NULL,
    -- Seconds a closed target endpoint is kept, and one whose initiator never heard from it; NULL is its LIFETIME.
    closed_retention_s bigint NOT NULL,
    unconfirmed_retention_s bigint,
    -- Set by tests only: the time, instead of the server's.
    manual_now timestamptz
);

CREATE TABLE dialoq.message_type (
    message_type_id integer PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    owner text,
    validation text NOT NULL,
    xml_schema_collection text,
    json_schema text,
    is_dropped boolean NOT NULL
);
CREATE UNIQUE INDEX message_type_name ON dialoq.message_type (name) WHERE NOT is_dropped;

CREATE TABLE dialoq.service_contract (
    service_contract_id integer PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    owner text,
    is_dropped boolean NOT NULL
);
CREATE UNIQUE INDEX service_contract_name ON dialoq.service_contract (name) WHERE NOT is_dropped;

CREATE TABLE dialoq.service_contract_message_usage (
    service_contract_id integer NOT NULL,
    position integer NOT NULL,
    message_type text COLLATE "C" NOT NULL,
    is_sent_by_initiator boolean NOT NULL,
    is_sent_by_target boolean NOT NULL,
    PRIMARY KEY (service_contract_id, position)
);

CREATE TABLE dialoq.service_queue (
    queue_id integer PRIMARY KEY,
    name text NOT NULL,
    -- The name as it is compared: without regard to case. Given by the client, so that every store folds alike.
    folded_name text COLLATE "C" NOT NULL UNIQUE,
    is_receive_enabled boolean NOT NULL,
    is_enqueue_enabled boolean NOT NULL,
    is_retention_enabled boolean NOT NULL,
    is_poison_message_handling_enabled boolean NOT NULL,
    is_poison_quarantine_enabled boolean NOT NULL,
    is_activation_enabled boolean,
    activation_procedure text,
    max_queue_readers integer,
    execute_as text,
    execute_as_user text
);

-- Rollbacks in a row of transactions that received from a queue: a row for each, so that nobody who counts waits for
-- somebody who has received since and not committed.
CREATE TABLE dialoq.queue_rollback (
    queue_id integer NOT NULL,
    counted_at timestamptz NOT NULL
);
CREATE INDEX queue_rollback_queue ON dialoq.queue_rollback (queue_id);

CREATE TABLE dialoq.service (
    service_id integer PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    owner text,
    queue_id integer NOT NULL
);

CREATE TABLE dialoq.service_contract_usage (
    service_id integer NOT NULL,
    position integer NOT NULL,
    service_contract_id integer NOT NULL,
    PRIMARY KEY (service_id, position)
);

CREATE TABLE dialoq.conversation_priority (
    priority_id integer PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    service_contract_id integer,
    local_service_id integer,
    remote_service_name text COLLATE "C",
    priority smallint NOT NULL
);

CREATE TABLE dialoq.xml_schema_collection (
    xml_collection_id integer PRIMARY KEY,
    name text NOT NULL,
    schemas text NOT NULL
);

CREATE TABLE dialoq.event_notification (
    event_notification_id integer PRIMARY KEY,
    name text NOT NULL,
    queue_id integer NOT NULL,
    event text NOT NULL,
    service text NOT NULL,
    conversation_handle uuid NOT NULL
);

-- Only who holds the lock of the group writes a row. Others tell an endpoint something by adding a row to queue_message.
CREATE TABLE dialoq.conversation_endpoint (
    endpoint_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation_handle uuid NOT NULL UNIQUE,
    conversation_id uuid NOT NULL,
    conversation_group_id uuid NOT NULL,
    service_id integer NOT NULL,
    service_contract_id integer NOT NULL,
    is_initiator boolean NOT NULL,
    far_service text COLLATE "C" NOT NULL,
    far_broker_instance text,
    state text NOT NULL,
    priority smallint NOT NULL,
    lifetime timestamptz NOT NULL,
    dialog_timer timestamptz,
    security_timestamp timestamptz,
    send_sequence bigint NOT NULL,
    -- True only once the peer is gone; while it is there, the peer's send_sequence says how far it got.
    receive_sequence bigint NOT NULL,
    end_dialog_sequence bigint,
    is_peer_known boolean NOT NULL,
    is_system boolean NOT NULL,
    is_quarantined boolean NOT NULL,
    -- Rollbacks in a row that gave back messages of its group, for quarantine.
    rollbacks integer NOT NULL DEFAULT 0,
    begun_at timestamptz NOT NULL,
    -- When something next happens to it by itself; NULL if that is more than 20 years off.
    due_at timestamptz
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX conversation_endpoint_peer ON dialoq.conversation_endpoint (conversation_id, is_initiator);
CREATE INDEX conversation_endpoint_group ON dialoq.conversation_endpoint (conversation_group_id);
CREATE INDEX conversation_endpoint_due ON dialoq.conversation_endpoint (due_at) WHERE due_at IS NOT NULL;

-- All queues. stored: 2 a DialogTimer, 1 an Error, 0 an application's message or an EndDialog. That is the order in which
-- an endpoint receives; within the stored of one kind queuing_order is the order of the conversation.
CREATE TABLE dialoq.queue_message (
    queuing_order bigint GENERATED ALWAYS AS IDENTITY,
    endpoint_id bigint NOT NULL,
    stored smallint NOT NULL,
    sequence bigint NOT NULL,
    message_type_id integer NOT NULL,
    message_id uuid NOT NULL,
    enqueued_at timestamptz NOT NULL,
    body bytea,
    trace text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX queue_message_endpoint ON dialoq.queue_message (endpoint_id, stored DESC, queuing_order);
-- Error (1), EndDialog (2) and DialogTimer (3). Nearly empty, so looking for one costs nearly nothing.
CREATE INDEX queue_message_system ON dialoq.queue_message (endpoint_id, message_type_id) WHERE message_type_id IN (1, 2, 3);
-- Bodies are read whole and once; compressing them would cost more than it saves.
ALTER TABLE dialoq.queue_message ALTER COLUMN body SET STORAGE EXTERNAL;

-- The claim index: where to look for a group that is ready. A row promises nothing; whoever claims the group looks at its
-- messages. Every level at which a group has messages has a row of the group that is as old as the oldest of them.
CREATE TABLE dialoq.ready_group (
    queue_id integer NOT NULL,
    below_top smallint NOT NULL,
    oldest bigint NOT NULL,
    conversation_group_id uuid NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- Not unique: two senders that do not see each other may both announce a group, and neither may wait for the other.
CREATE INDEX ready_group_rank ON dialoq.ready_group (queue_id, below_top, oldest);
CREATE INDEX ready_group_group ON dialoq.ready_group (conversation_group_id);

-- Endpoints to look at once more when every transaction that runs now is over, because one of them may have told an
-- endpoint something without seeing that it was gone, had ended, or had moved. 0 is every endpoint that a change of
-- definitions may concern. tick does it.
CREATE TABLE dialoq.unsettled (
    unsettled_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id bigint NOT NULL,
    noted_at timestamptz NOT NULL,
    -- Every transaction below this one was running or over when tick first saw the row; NULL until then.
    after_xid xid8
);

-- RETENTION: status 0 was received, status 3 was sent; kept until the conversation ends.
CREATE TABLE dialoq.retained_message (
    endpoint_id bigint NOT NULL,
    queuing_order bigint NOT NULL,
    status smallint NOT NULL,
    stored smallint NOT NULL,
    sequence bigint NOT NULL,
    message_type_id integer NOT NULL,
    message_id uuid NOT NULL,
    enqueued_at timestamptz NOT NULL,
    body bytea,
    trace text,
    PRIMARY KEY (endpoint_id, queuing_order)
);

CREATE TABLE dialoq.transmission (
    transmission_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id bigint NOT NULL,
    sequence bigint NOT NULL,
    message_type_id integer NOT NULL,
    is_conversation_error boolean NOT NULL,
    is_end_of_dialog boolean NOT NULL,
    message_id uuid NOT NULL,
    enqueued_at timestamptz NOT NULL,
    priority smallint NOT NULL,
    body bytea,
    trace text,
    status text NOT NULL,
    -- What the sender found wrong with the body, told when it is delivered; NULL if nothing.
    body_fault text
);
CREATE INDEX transmission_endpoint ON dialoq.transmission (endpoint_id, transmission_id);

-- A RECEIVE that a transaction has not committed yet: written from outside it, removed by it. A row whose transaction is
-- gone is a rollback that was not counted. Unlogged: after a crash of the server nobody's count matters.
-- attempt_id names the transaction, which may hold several groups.
CREATE UNLOGGED TABLE dialoq.receive_attempt (
    attempt_id uuid NOT NULL,
    conversation_group_id uuid NOT NULL,
    queue_id integer NOT NULL,
    began_at timestamptz NOT NULL,
    PRIMARY KEY (attempt_id, conversation_group_id)
);
CREATE INDEX receive_attempt_group ON dialoq.receive_attempt (conversation_group_id);

-- Units whose caller gave them an id, so that a retry after a lost answer does not happen twice.
CREATE TABLE dialoq.done_unit (
    unit_id uuid PRIMARY KEY,
    done_at timestamptz NOT NULL
);
CREATE INDEX done_unit_age ON dialoq.done_unit (done_at);

-- What every process tells about its readers. A process is alive while it holds its session lock.
CREATE TABLE dialoq.queue_monitor (
    process uuid NOT NULL,
    monitor_id bigint NOT NULL,
    queue_id integer NOT NULL,
    state text NOT NULL,
    last_empty_rowset_time timestamptz,
    last_activated_time timestamptz,
    tasks_waiting bigint NOT NULL,
    max_queue_readers integer NOT NULL,
    tasks_running bigint NOT NULL,
    tasks_started_total bigint NOT NULL,
    tasks_aborted_total bigint NOT NULL,
    task_limit_reached_total bigint NOT NULL,
    activation_errors_total bigint NOT NULL,
    host_name text NOT NULL,
    process_id bigint NOT NULL,
    reported_at timestamptz NOT NULL,
    PRIMARY KEY (process, monitor_id)
);

CREATE TABLE dialoq.activated_task (
    process uuid NOT NULL,
    task_id bigint NOT NULL,
    monitor_id bigint NOT NULL,
    queue_id integer NOT NULL,
    procedure_name text NOT NULL,
    process_id bigint NOT NULL,
    started_at timestamptz NOT NULL,
    PRIMARY KEY (process, task_id)
);
