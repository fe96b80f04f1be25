-- sys.dm_broker_activated_tasks, as the owner of the file last wrote it
CREATE VIEW sys_dm_broker_activated_tasks AS
SELECT
    a.spid, 1 AS database_id, a.queue_id, a.procedure_name, coalesce(q.execute_as_user, q.execute_as) AS execute_as,
    a.process_id,
    datetime(a.started_at / 1000000, 'unixepoch') || printf('.%06d', a.started_at % 1000000) AS started_at
FROM dialoq_activated_task AS a
LEFT JOIN dialoq_service_queue AS q ON q.queue_id = a.queue_id;
