-- Claims the id of a unit, first in its transaction: a unit of that id happens once. Waits until another attempt at the
-- same unit ends.
-- Takes: the unit's id
-- Gives: is_new; done_at, when the id was claimed, which tells one attempt at the unit from another
-- Errors: 60005, 60026
-- Locks: the unit's row
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.claim_unit(p_unit_id uuid)
RETURNS TABLE (is_new boolean, done_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    PERFORM dialoq.check_isolation();
    PERFORM dialoq.check_id('p_unit_id', p_unit_id);
    INSERT INTO dialoq.done_unit AS d (unit_id, done_at) VALUES (p_unit_id, clock_timestamp()) ON CONFLICT (unit_id) DO NOTHING
    RETURNING d.done_at INTO done_at;
    is_new := FOUND;
    IF NOT is_new THEN
        SELECT d.done_at INTO done_at FROM dialoq.done_unit AS d WHERE d.unit_id = p_unit_id;
    END IF;
    RETURN NEXT;
END $$;
