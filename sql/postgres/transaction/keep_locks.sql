-- Makes the locks of conversation groups that the transaction holds the session's too, so that they outlive its rollback. The
-- caller frees them with unlock_session, and rolls the transaction back, which gives the search path back too.
-- Takes: nothing
-- Gives: nothing
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_catalog.pg_try_advisory_lock(l.classid::bigint << 32 | l.objid::bigint)
FROM pg_catalog.pg_locks AS l
WHERE l.locktype = 'advisory' AND l.pid = pg_catalog.pg_backend_pid() AND l.granted AND l.objsubid = 1
    AND l.classid::bigint >> 16 = 17513
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
