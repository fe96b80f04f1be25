-- Whether a unit of that id has happened.
-- Takes: the unit's id
-- Gives: happened
-- Errors: none
-- Locks: none
CREATE OR REPLACE FUNCTION dialoq.unit_happened(p_unit_id uuid)
RETURNS TABLE (happened boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dialoq, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT EXISTS (SELECT FROM dialoq.done_unit AS d WHERE d.unit_id = p_unit_id);
END $$;
