-- Settings that belong to no definition. configure: how long closed target endpoints are kept. set_manual_now: tests
-- only, the time to use instead of the server's; NULL returns to the server's. With p_if_it_is it does nothing if the time is another.
-- Takes: seconds after an END that has reached the initiator; seconds otherwise (NULL: the LIFETIME); or the time
-- Gives: nothing
-- Errors: 60005
-- Locks: the broker's row
-- For: plain SQL
-- Called by: dialoq_admin
CREATE FUNCTION dialoq.configure(p_closed_retention_s bigint, p_unconfirmed_retention_s bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    -- Longer than any conversation lives.
    v_closed_s bigint := CASE WHEN p_closed_retention_s > 2147483647 THEN 2147483647 ELSE p_closed_retention_s END;
    v_unconfirmed_s bigint := CASE WHEN p_unconfirmed_retention_s > 2147483647 THEN 2147483647 ELSE p_unconfirmed_retention_s END;
BEGIN
    PERFORM dialoq.check_range('p_closed_retention_s', v_closed_s, 0, 2147483647);
    IF p_unconfirmed_retention_s IS NOT NULL THEN
        PERFORM dialoq.check_range('p_unconfirmed_retention_s', v_unconfirmed_s, 0, 2147483647);
    END IF;
    UPDATE dialoq.broker
    SET closed_retention_s = v_closed_s, unconfirmed_retention_s = v_unconfirmed_s
    WHERE closed_retention_s <> v_closed_s OR unconfirmed_retention_s IS DISTINCT FROM v_unconfirmed_s;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('configure', SQLERRM);
END
$$;

CREATE FUNCTION dialoq.set_manual_now(p_now timestamptz, p_if_it_is timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    UPDATE dialoq.broker AS b SET manual_now = p_now WHERE p_if_it_is IS NULL OR b.manual_now = p_if_it_is;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('set_manual_now', SQLERRM);
END
$$;
