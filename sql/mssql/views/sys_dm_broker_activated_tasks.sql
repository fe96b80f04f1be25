-- sys.dm_broker_activated_tasks, as the live processes last wrote them
CREATE VIEW dialoq.sys_dm_broker_activated_tasks AS
SELECT
    a.task_id AS spid, 1 AS database_id, a.queue_id, a.procedure_name,
    COALESCE(q.execute_as_user, q.execute_as) AS execute_as, a.process_id, a.started_at
FROM dialoq.activated_task AS a
JOIN dialoq.live_process AS l ON l.process = a.process
LEFT JOIN dialoq.service_queue AS q ON q.queue_id = a.queue_id;
GO
