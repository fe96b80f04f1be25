-- The session that holds the lock of a conversation group (rules/group_lock.sql), or the prepared transaction. Of the sessions of other
-- logins the server shows number, login and application; the rest only to a member of pg_read_all_stats.
-- Takes: $1 conversation_group_id
-- Gives: session_id, prepared (the name of a prepared transaction, which no session has), process_id, host_name, program_name, principal,
--     since (microseconds of UTC; of a session that holds a claim, and so has no transaction, the end of its last statement); no row if
--     the group is free
SELECT h.session_id, h.prepared, NULL::bigint AS process_id, h.host_name, h.program_name, h.principal,
    (extract(epoch FROM h.began) * 1000000.0)::bigint AS since
FROM (
    SELECT
        a.pid::bigint AS session_id, p.gid AS prepared, pg_catalog.host(a.client_addr) AS host_name, a.application_name AS program_name,
        coalesce(a.usename, p.owner)::text AS principal, coalesce(a.xact_start, a.state_change, p.prepared) AS began,
        a.xact_start, a.pid
    FROM pg_catalog.pg_locks AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
    -- The lock of its number names it: before a restart its virtual transaction does not.
    LEFT JOIN pg_catalog.pg_locks AS x
        ON l.pid IS NULL AND x.virtualtransaction = l.virtualtransaction AND x.pid IS NULL AND x.locktype = 'transactionid'
    LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction = x.transactionid
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND (a.pid IS NOT NULL OR p.gid IS NOT NULL)
        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
        -- The key is that of group_key, written out: only the owner may call it.
        AND (l.classid::bigint << 32 | l.objid::bigint)
            = ((pg_catalog.uuid_hash_extended($1::text::uuid, 0) & 281474976710655) | (17513::bigint << 48))
) AS h
ORDER BY h.xact_start NULLS LAST, h.pid
LIMIT 1
