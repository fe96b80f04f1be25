-- Gives up claims of this session.
-- Takes: their groups
-- Gives: nothing
-- Errors: none
-- Locks: none
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.release_claims(p_groups uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = error AS $$
BEGIN
    PERFORM pg_advisory_unlock_shared(dialoq.group_key(g.id)), pg_advisory_unlock(dialoq.claim_key(g.id)) FROM unnest(p_groups) AS g (id);
END $$;
