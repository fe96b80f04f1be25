-- The session that holds the lock of a conversation group (rules/group_lock.sql). Of the sessions of other logins the server shows
-- number, login and application; the rest only to a member of pg_read_all_stats.
-- Takes: $1 conversation_group_id
-- Gives: session_id, process_id, host_name, program_name, principal, since (microseconds of UTC; of a session that holds a claim, and so
--     has no transaction, the end of its last statement); no row if the group is free
SELECT
    a.pid::bigint AS session_id, NULL::bigint AS process_id, pg_catalog.host(a.client_addr) AS host_name,
    a.application_name AS program_name, a.usename::text AS principal,
    (extract(epoch FROM coalesce(a.xact_start, a.state_change)) * 1000000.0)::bigint AS since
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    -- The key is that of group_key, written out: only the owner may call it.
    AND (l.classid::bigint << 32 | l.objid::bigint)
        = ((pg_catalog.uuid_hash_extended($1::text::uuid, 0) & 281474976710655) | (17513::bigint << 48))
ORDER BY a.xact_start NULLS LAST, a.pid
LIMIT 1
