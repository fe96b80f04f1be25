-- Lets one installer in at a time, until the end of its transaction. The key is our prefix and nothing else. Every role of
-- the server may take that lock, so the wait has an end. What the installation names without a schema is PostgreSQL's own,
-- whatever another role has made in a schema of this user's search path. Rights that clear.sql has not kept itself, as the
-- owner of a database could name them by ALTER DATABASE ... SET, are none.
-- What is replaced may be in use: a table or view that an open transaction has read. Every other session that needs it waits
-- behind this one, so each wait ends after two seconds.
-- Takes: nothing
-- Gives: nothing
-- Errors: 60010 if another session holds the lock for a minute; 55P03 later
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL dialoq.kept_rights = '';
SET LOCAL lock_timeout = '60s';
DO $$
BEGIN
    PERFORM pg_advisory_xact_lock(17481::bigint << 48);
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'SB010', DETAIL = 'dialoq 60010', MESSAGE = (
        SELECT format('the lock of the installation was held for 60 s by %s; end that session, then install', coalesce(
            string_agg(format('session %s (user ''%s'', application ''%s'')', a.pid, a.usename, a.application_name), ', '),
            'a session that has ended meanwhile'))
        FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid AND a.datid = l.database
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND a.datname = current_database()
            AND l.classid::bigint << 32 | l.objid::bigint = 17481::bigint << 48);
END
$$;
SET LOCAL lock_timeout = '2s'
