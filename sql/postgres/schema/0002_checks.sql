-- What a column may hold, where a row of it that says nonsense would stop a background step or a read of every process.
-- The tables that every message writes have no such rules: their rows are written by functions that have checked their
-- arguments, and a rule costs at each write.

-- Names fold A to Z only (decision 0021).
UPDATE dialoq.service_queue SET folded_name = lower(name COLLATE "C");

-- A row that an earlier version took is brought into its range first, or the upgrade would fail for ever. NULL stays NULL:
-- greatest and least pass it over.
UPDATE dialoq.broker SET
    closed_retention_s = least(greatest(closed_retention_s, 0), 2147483647),
    unconfirmed_retention_s = CASE WHEN unconfirmed_retention_s IS NOT NULL
        THEN least(greatest(unconfirmed_retention_s, 0), 2147483647) END,
    manual_now = CASE WHEN manual_now IS NOT NULL
        THEN least(greatest(manual_now, '0001-01-01 00:00:00+00'), '9999-12-31 23:59:59.999999+00') END;
UPDATE dialoq.message_type SET validation = 'N' WHERE validation NOT IN ('N', 'E', 'X', 'V', 'J', 'S');
UPDATE dialoq.conversation_priority SET priority = least(greatest(priority, 1), 10) WHERE priority NOT BETWEEN 1 AND 10;
ALTER TABLE dialoq.broker
    ADD CHECK (closed_retention_s BETWEEN 0 AND 2147483647),
    ADD CHECK (unconfirmed_retention_s BETWEEN 0 AND 2147483647),
    ADD CHECK (manual_now BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00');

ALTER TABLE dialoq.message_type ADD CHECK (validation IN ('N', 'E', 'X', 'V', 'J', 'S'));
ALTER TABLE dialoq.conversation_priority ADD CHECK (priority BETWEEN 1 AND 10);

-- A verdict that an earlier version took from a caller as it was: the body counts as rejected.
UPDATE dialoq.transmission SET body_fault = '-8430|the body was rejected, and the reason is not known'
WHERE body_fault <> '' AND body_fault !~ '^-(8430|9615)[|]';
ALTER TABLE dialoq.transmission ADD CHECK (body_fault = '' OR body_fault ~ '^-(8430|9615)[|]');

-- The transaction that received, so that its rollback is counted only if it was rolled back.
ALTER TABLE dialoq.receive_attempt ADD COLUMN receiver_xid xid8;
CREATE UNIQUE INDEX receive_attempt_receiver ON dialoq.receive_attempt (conversation_group_id, receiver_xid);
DROP INDEX dialoq.receive_attempt_group;

-- Every process tells them anew.
DELETE FROM dialoq.queue_monitor;
DELETE FROM dialoq.activated_task;

ALTER TABLE dialoq.queue_monitor
    ADD CHECK (least(monitor_id, tasks_waiting, max_queue_readers, tasks_running, tasks_started_total,
        tasks_aborted_total, task_limit_reached_total, activation_errors_total, process_id) >= 0),
    ADD CHECK (greatest(tasks_waiting, tasks_running, tasks_started_total, tasks_aborted_total,
        task_limit_reached_total, activation_errors_total, process_id) <= 1000000000000),
    ADD CHECK (length(state) <= 60 AND length(host_name) <= 300),
    ADD CHECK (last_empty_rowset_time BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'),
    ADD CHECK (last_activated_time BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00');

ALTER TABLE dialoq.activated_task
    ADD CHECK (least(task_id, monitor_id, process_id) >= 0 AND process_id <= 1000000000000),
    ADD CHECK (length(procedure_name) <= 300),
    ADD CHECK (started_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00');
