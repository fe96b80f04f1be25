-- What the Rust client reads the definitions from: the tables as they are, for those who may not touch them.
CREATE VIEW dialoq.read_broker AS
SELECT
    service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id, catalog_version,
    COALESCE(manual_now, CAST(SYSUTCDATETIME() AS datetime2(6))) AS now_at,
    CAST(CASE WHEN manual_now IS NULL THEN 0 ELSE 1 END AS bit) AS is_manual_now
FROM dialoq.broker;
GO
CREATE VIEW dialoq.read_message_types AS
SELECT
    message_type_id, name, owner, validation, xml_schema_collection, json_schema, is_dropped
FROM dialoq.message_type;
GO
CREATE VIEW dialoq.read_service_contracts AS
SELECT
    service_contract_id, name, owner, is_dropped
FROM dialoq.service_contract;
GO
CREATE VIEW dialoq.read_service_contract_message_usages AS
SELECT
    service_contract_id, position, message_type, is_sent_by_initiator, is_sent_by_target
FROM dialoq.service_contract_message_usage;
GO
CREATE VIEW dialoq.read_service_queues AS
SELECT
    queue_id, name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled,
    is_poison_message_handling_enabled, is_poison_quarantine_enabled, is_activation_enabled,
    activation_procedure, max_queue_readers, execute_as, execute_as_user, retry_max_attempts, retry_delay_ms, retry_factor_percent,
    retry_max_delay_ms, retry_jitter_percent, retry_then, off_since, off_by, off_reason, receives_held_until
FROM dialoq.service_queue;
GO
CREATE VIEW dialoq.read_services AS
SELECT
    service_id, name, owner, queue_id
FROM dialoq.service;
GO
CREATE VIEW dialoq.read_service_contract_usages AS
SELECT
    service_id, position, service_contract_id
FROM dialoq.service_contract_usage;
GO
CREATE VIEW dialoq.read_conversation_priorities AS
SELECT
    priority_id, name, service_contract_id, local_service_id, remote_service_name, priority
FROM dialoq.conversation_priority;
GO
CREATE VIEW dialoq.read_xml_schema_collections AS
SELECT
    xml_collection_id, name, schemas
FROM dialoq.xml_schema_collection;
GO
CREATE VIEW dialoq.read_event_notifications AS
SELECT
    event_notification_id, name, queue_id, event, service, conversation_handle
FROM dialoq.event_notification;
GO
CREATE VIEW dialoq.read_work_queues AS
SELECT
    queue_id, name, folded_name, is_enabled, work_order, has_history, take_by, max_attempts, retry_delay_ms, retry_factor_percent,
    max_retry_delay_ms, retry_jitter_percent, lease_ms, history_seconds, history_rows, max_taken, max_taken_per_key,
    rate_jobs, rate_ms, key_rate_jobs, max_queue_readers
FROM dialoq.work_queue;
GO
CREATE VIEW dialoq.read_work_schedules AS
SELECT
    schedule_id, name, queue_id, is_enabled, cron, time_zone, missed, job_type, job_key, level, body, next_at, last_at
FROM dialoq.work_schedule;
GO
