-- The tables of a broker. Nobody but the procedures of this schema touches them.
-- Times are UTC. What is written for every message is kept narrow and has as few indexes as it can be found by.
-- Names are compared byte by byte, so their columns have a binary collation. Ids are never a clustered key.

-- One row: the settings, and the version that every change of a definition raises.
CREATE TABLE dialoq.broker (
    singleton int NOT NULL PRIMARY KEY CHECK (singleton = 1),
    service_broker_guid uniqueidentifier NOT NULL,
    is_broker_enabled bit NOT NULL,
    is_honor_broker_priority_on bit NOT NULL,
    next_object_id int NOT NULL,
    catalog_version bigint NOT NULL,
    -- Seconds a closed target endpoint is kept, and one whose initiator never heard from it; NULL is its LIFETIME.
    closed_retention_s bigint NOT NULL,
    unconfirmed_retention_s bigint NULL,
    -- Set by tests only: the time, instead of the server's.
    manual_now datetime2(6) NULL
);
GO

CREATE TABLE dialoq.message_type (
    message_type_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner nvarchar(256) NULL,
    validation nvarchar(1) COLLATE Latin1_General_100_BIN2 NOT NULL,
    xml_schema_collection nvarchar(256) NULL,
    json_schema nvarchar(max) NULL,
    is_dropped bit NOT NULL
);
CREATE UNIQUE INDEX message_type_name ON dialoq.message_type (name) WHERE is_dropped = 0;
GO

CREATE TABLE dialoq.service_contract (
    service_contract_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner nvarchar(256) NULL,
    is_dropped bit NOT NULL
);
CREATE UNIQUE INDEX service_contract_name ON dialoq.service_contract (name) WHERE is_dropped = 0;
GO

CREATE TABLE dialoq.service_contract_message_usage (
    service_contract_id int NOT NULL,
    position int NOT NULL,
    message_type nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    is_sent_by_initiator bit NOT NULL,
    is_sent_by_target bit NOT NULL,
    PRIMARY KEY (service_contract_id, position)
);
GO

CREATE TABLE dialoq.service_queue (
    queue_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) NOT NULL,
    -- The name as it is compared: without regard to case. Given by the client, so that every store folds alike.
    folded_name nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL UNIQUE,
    is_receive_enabled bit NOT NULL,
    is_enqueue_enabled bit NOT NULL,
    is_retention_enabled bit NOT NULL,
    is_poison_message_handling_enabled bit NOT NULL,
    is_poison_quarantine_enabled bit NOT NULL,
    is_activation_enabled bit NULL,
    activation_procedure nvarchar(1024) NULL,
    max_queue_readers int NULL,
    execute_as nvarchar(256) NULL,
    execute_as_user nvarchar(256) NULL
);
GO

-- Rollbacks in a row of transactions that received from a queue: a row for each, so that nobody who counts waits for
-- somebody who has received since and not committed.
CREATE TABLE dialoq.queue_rollback (
    rollback_id bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY CLUSTERED,
    queue_id int NOT NULL,
    counted_at datetime2(6) NOT NULL
);
CREATE INDEX queue_rollback_queue ON dialoq.queue_rollback (queue_id);
GO

CREATE TABLE dialoq.service (
    service_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL UNIQUE,
    owner nvarchar(256) NULL,
    queue_id int NOT NULL
);
GO

CREATE TABLE dialoq.service_contract_usage (
    service_id int NOT NULL,
    position int NOT NULL,
    service_contract_id int NOT NULL,
    PRIMARY KEY (service_id, position)
);
GO

CREATE TABLE dialoq.conversation_priority (
    priority_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    service_contract_id int NULL,
    local_service_id int NULL,
    remote_service_name nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL,
    priority int NOT NULL
);
GO

CREATE TABLE dialoq.xml_schema_collection (
    xml_collection_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) NOT NULL,
    schemas nvarchar(max) NOT NULL
);
GO

CREATE TABLE dialoq.event_notification (
    event_notification_id int NOT NULL PRIMARY KEY,
    name nvarchar(256) NOT NULL,
    queue_id int NOT NULL,
    event nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    service nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL,
    conversation_handle uniqueidentifier NOT NULL
);
GO

-- Only who holds the lock of the group writes a row. Others tell an endpoint something by adding a row to queue_message.
CREATE TABLE dialoq.conversation_endpoint (
    endpoint_id bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY CLUSTERED,
    conversation_handle uniqueidentifier NOT NULL,
    conversation_id uniqueidentifier NOT NULL,
    conversation_group_id uniqueidentifier NOT NULL,
    service_id int NOT NULL,
    service_contract_id int NOT NULL,
    is_initiator bit NOT NULL,
    far_service nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL,
    far_broker_instance nvarchar(128) COLLATE Latin1_General_100_BIN2 NULL,
    state nchar(2) COLLATE Latin1_General_100_BIN2 NOT NULL,
    priority int NOT NULL,
    lifetime datetime2(6) NOT NULL,
    dialog_timer datetime2(6) NULL,
    security_timestamp datetime2(6) NULL,
    send_sequence bigint NOT NULL,
    -- True only once the peer is gone; while it is there, the peer's send_sequence says how far it got.
    receive_sequence bigint NOT NULL,
    end_dialog_sequence bigint NULL,
    is_peer_known bit NOT NULL,
    is_system bit NOT NULL,
    is_quarantined bit NOT NULL,
    -- Rollbacks in a row that gave back messages of its group, for quarantine.
    rollbacks int NOT NULL DEFAULT 0,
    begun_at datetime2(6) NOT NULL,
    -- When something next happens to it by itself; NULL if that is more than 20 years off.
    due_at datetime2(6) NULL
);
CREATE UNIQUE INDEX conversation_endpoint_handle ON dialoq.conversation_endpoint (conversation_handle);
CREATE UNIQUE INDEX conversation_endpoint_peer ON dialoq.conversation_endpoint (conversation_id, is_initiator);
CREATE INDEX conversation_endpoint_group ON dialoq.conversation_endpoint (conversation_group_id);
CREATE INDEX conversation_endpoint_due ON dialoq.conversation_endpoint (due_at) WHERE due_at IS NOT NULL;
GO

-- All queues. stored: 2 a DialogTimer, 1 an Error, 0 an application's message or an EndDialog. That is the order in which
-- an endpoint receives; within the stored of one kind queuing_order is the order of the conversation. The only index is
-- the clustered one: every message is found by its endpoint, and is written once.
CREATE TABLE dialoq.queue_message (
    queuing_order bigint IDENTITY(1, 1) NOT NULL,
    endpoint_id bigint NOT NULL,
    stored smallint NOT NULL,
    sequence bigint NOT NULL,
    message_type_id int NOT NULL,
    message_id uniqueidentifier NOT NULL,
    enqueued_at datetime2(6) NOT NULL,
    body varbinary(max) NULL,
    trace nvarchar(max) NULL
);
CREATE UNIQUE CLUSTERED INDEX queue_message_endpoint
    ON dialoq.queue_message (endpoint_id, stored DESC, queuing_order) WITH (ALLOW_PAGE_LOCKS = OFF);
GO

-- The claim index: where to look for a group that is ready. A row promises nothing; whoever claims the group looks at its
-- messages. Every level at which a group has messages has a row of the group that is as old as the oldest of them. Not
-- unique: two senders that do not see each other may both announce a group, and neither may wait for the other.
CREATE TABLE dialoq.ready_group (
    queue_id int NOT NULL,
    below_top int NOT NULL,
    oldest bigint NOT NULL,
    conversation_group_id uniqueidentifier NOT NULL
);
CREATE CLUSTERED INDEX ready_group_rank
    ON dialoq.ready_group (queue_id, below_top, oldest) WITH (ALLOW_PAGE_LOCKS = OFF);
CREATE INDEX ready_group_group ON dialoq.ready_group (conversation_group_id) WITH (ALLOW_PAGE_LOCKS = OFF);
GO

-- Endpoints to look at once more when whoever works on the peer at this moment is done, because that transaction may have
-- told an endpoint something without seeing that it was gone, had ended, or had moved. 0 is every endpoint that a change
-- of definitions may concern. tick does it.
CREATE TABLE dialoq.unsettled (
    unsettled_id bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY CLUSTERED,
    endpoint_id bigint NOT NULL,
    conversation_id uniqueidentifier NOT NULL,
    is_initiator bit NOT NULL,
    -- Not before; by the server's clock.
    look_at datetime2(6) NOT NULL
);
CREATE INDEX unsettled_look_at ON dialoq.unsettled (look_at);
GO

-- RETENTION: status 0 was received, status 3 was sent; kept until the conversation ends.
CREATE TABLE dialoq.retained_message (
    endpoint_id bigint NOT NULL,
    queuing_order bigint NOT NULL,
    status int NOT NULL,
    stored smallint NOT NULL,
    sequence bigint NOT NULL,
    message_type_id int NOT NULL,
    message_id uniqueidentifier NOT NULL,
    enqueued_at datetime2(6) NOT NULL,
    body varbinary(max) NULL,
    trace nvarchar(max) NULL,
    PRIMARY KEY (endpoint_id, queuing_order)
);
GO

CREATE TABLE dialoq.transmission (
    transmission_id bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY CLUSTERED,
    endpoint_id bigint NOT NULL,
    sequence bigint NOT NULL,
    message_type_id int NOT NULL,
    is_conversation_error bit NOT NULL,
    is_end_of_dialog bit NOT NULL,
    message_id uniqueidentifier NOT NULL,
    enqueued_at datetime2(6) NOT NULL,
    priority int NOT NULL,
    body varbinary(max) NULL,
    trace nvarchar(max) NULL,
    status nvarchar(256) NOT NULL,
    -- What the sender found wrong with the body, told when it is delivered; NULL if nothing.
    body_fault nvarchar(max) NULL
);
CREATE INDEX transmission_endpoint ON dialoq.transmission (endpoint_id, transmission_id);
GO

-- A RECEIVE that a transaction has not committed yet: written from outside it, removed by it. A row whose transaction is
-- gone is a rollback that was not counted. attempt_id names the transaction, which may hold several groups.
CREATE TABLE dialoq.receive_attempt (
    attempt_number bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY CLUSTERED,
    attempt_id uniqueidentifier NOT NULL,
    conversation_group_id uniqueidentifier NOT NULL,
    queue_id int NOT NULL,
    began_at datetime2(6) NOT NULL
);
CREATE UNIQUE INDEX receive_attempt_attempt ON dialoq.receive_attempt (attempt_id, conversation_group_id);
CREATE INDEX receive_attempt_group ON dialoq.receive_attempt (conversation_group_id);
GO

-- Units whose caller gave them an id, so that a retry after a lost answer does not happen twice.
CREATE TABLE dialoq.done_unit (
    unit_id uniqueidentifier NOT NULL,
    done_at datetime2(6) NOT NULL,
    CONSTRAINT done_unit_unit_id PRIMARY KEY NONCLUSTERED (unit_id)
);
CREATE CLUSTERED INDEX done_unit_done_at ON dialoq.done_unit (done_at);
GO

-- What every process tells about its readers. A process is alive while it holds its session lock.
CREATE TABLE dialoq.queue_monitor (
    process uniqueidentifier NOT NULL,
    monitor_id bigint NOT NULL,
    queue_id int NOT NULL,
    state nvarchar(64) NOT NULL,
    last_empty_rowset_time datetime2(6) NULL,
    last_activated_time datetime2(6) NULL,
    tasks_waiting bigint NOT NULL,
    max_queue_readers int NOT NULL,
    tasks_running bigint NOT NULL,
    tasks_started_total bigint NOT NULL,
    tasks_aborted_total bigint NOT NULL,
    task_limit_reached_total bigint NOT NULL,
    activation_errors_total bigint NOT NULL,
    host_name nvarchar(256) NOT NULL,
    process_id bigint NOT NULL,
    reported_at datetime2(6) NOT NULL,
    CONSTRAINT queue_monitor_process PRIMARY KEY NONCLUSTERED (process, monitor_id)
);
GO

CREATE TABLE dialoq.activated_task (
    process uniqueidentifier NOT NULL,
    task_id bigint NOT NULL,
    monitor_id bigint NOT NULL,
    queue_id int NOT NULL,
    procedure_name nvarchar(1024) NOT NULL,
    process_id bigint NOT NULL,
    started_at datetime2(6) NOT NULL,
    CONSTRAINT activated_task_process PRIMARY KEY NONCLUSTERED (process, task_id)
);
GO

-- What procedures take rows as; item counts from 0.
CREATE TYPE dialoq.send_many_rows AS TABLE (
    item int NOT NULL PRIMARY KEY,
    conversation_handle uniqueidentifier NULL
);
GO
CREATE TYPE dialoq.send_batch_rows AS TABLE (
    item int NOT NULL PRIMARY KEY,
    conversation_handle uniqueidentifier NULL,
    message_type_name nvarchar(4000) COLLATE Latin1_General_100_BIN2 NULL,
    message_body varbinary(max) NULL,
    trace nvarchar(max) NULL,
    body_fault nvarchar(max) NULL,
    message_id uniqueidentifier NULL
);
GO
CREATE TYPE dialoq.receive_batch_rows AS TABLE (
    item int NOT NULL PRIMARY KEY,
    [top] bigint NULL
);
GO
CREATE TYPE dialoq.usage_rows AS TABLE (
    item int NOT NULL PRIMARY KEY,
    message_type nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    is_sent_by_initiator int NOT NULL,
    is_sent_by_target int NOT NULL
);
GO
CREATE TYPE dialoq.contract_id_rows AS TABLE (
    item int NOT NULL PRIMARY KEY,
    service_contract_id int NOT NULL
);
GO
