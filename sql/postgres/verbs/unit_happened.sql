-- Whether a unit of that id has happened.
-- Takes: the unit's id
-- Gives: happened
-- Errors: none
-- Locks: none
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.unit_happened(p_unit_id uuid)
RETURNS TABLE (happened boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
BEGIN
    RETURN QUERY SELECT EXISTS (SELECT FROM dialoq.done_unit AS d WHERE d.unit_id = p_unit_id);
END $$;
