-- Takes the lock of a conversation group alone that this transaction shares with a claim (rules/claim.sql), once the claim is
-- released. It is free, as a rule; otherwise hold_group waits. The key is that of group_key, written out: only the
-- owner may call it. Types and operators have their schema, because the names are looked up in the user's search path.
-- Takes: the group's id for {group}
-- Gives: nothing
SELECT CASE
    WHEN pg_catalog.pg_try_advisory_xact_lock(
        (pg_catalog.uuid_hash_extended('{group}'::pg_catalog.uuid, 0) OPERATOR(pg_catalog.&) 281474976710655)
        OPERATOR(pg_catalog.|) (17513::bigint OPERATOR(pg_catalog.<<) 48)) THEN true
    ELSE dialoq.hold_group('{group}'::pg_catalog.uuid)
END
