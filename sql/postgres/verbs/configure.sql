-- Settings that belong to no definition. configure: how long closed target endpoints are kept. set_manual_now: tests
-- only, the time that counts instead of the server's; NULL is the server's again.
-- Takes: seconds after an END that the initiator heard of; seconds otherwise, NULL being the LIFETIME; or the time
-- Gives: nothing
-- Errors: none of its own
-- Locks: the broker's row
CREATE FUNCTION dialoq.configure(p_closed_retention_s bigint, p_unconfirmed_retention_s bigint DEFAULT NULL)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE dialoq.broker
    SET closed_retention_s = p_closed_retention_s, unconfirmed_retention_s = p_unconfirmed_retention_s
    WHERE closed_retention_s <> p_closed_retention_s
        OR unconfirmed_retention_s IS DISTINCT FROM p_unconfirmed_retention_s;
$$;

CREATE FUNCTION dialoq.set_manual_now(p_now timestamptz)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE dialoq.broker SET manual_now = p_now;
$$;
