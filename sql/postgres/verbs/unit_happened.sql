-- Whether a unit of that id has happened. Waits until an attempt at the unit that is under way ends: its COMMIT may wait for a disk or a
-- standby. A transaction that only reads says what is committed.
-- Takes: the unit's id
-- Gives: happened
-- Errors: 60026
-- Locks: the unit's row, waiting, and only for the moment
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.unit_happened(p_unit_id uuid)
RETURNS TABLE (happened boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    happened := EXISTS (SELECT FROM dialoq.done_unit AS d WHERE d.unit_id = p_unit_id);
    IF NOT happened AND p_unit_id IS NOT NULL AND current_setting('transaction_read_only') = 'off' THEN
        PERFORM dialoq.check_isolation();
        -- As claim_unit, and undone.
        BEGIN
            INSERT INTO dialoq.done_unit (unit_id, done_at) VALUES (p_unit_id, clock_timestamp()) ON CONFLICT (unit_id) DO NOTHING;
            happened := NOT FOUND;
            RAISE EXCEPTION USING ERRCODE = 'SB000', MESSAGE = 'it was only asked for';
        EXCEPTION WHEN SQLSTATE 'SB000' THEN
            NULL;
        END;
    END IF;
    RETURN NEXT;
END $$;
