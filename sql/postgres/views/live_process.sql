-- The processes with readers that are alive: a session of each holds its lock. The key is that of process_lock, written out: a
-- reader of a view needs rights on its functions.
CREATE VIEW dialoq.live_process AS
SELECT p.process
FROM (SELECT m.process FROM dialoq.queue_monitor AS m UNION SELECT a.process FROM dialoq.activated_task AS a) AS p
WHERE ((17488::bigint << 48) | ('x' || right(p.process::text, 12))::bit(48)::bigint) IN (
    SELECT (l.classid::bigint << 32) | l.objid::bigint
    FROM pg_catalog.pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock' AND l.granted
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
);
