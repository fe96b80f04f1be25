-- The level of an endpoint.
-- Takes, Gives, Errors, Locks: see each function

-- The level of an endpoint: of the broker priorities that match, the most exact; the contract weighs most, the remote
-- service least.
CREATE OR REPLACE FUNCTION dialoq.level_for(p_contract_id integer, p_service_id integer, p_remote_service text) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT v.level FROM dialoq.level_row(p_contract_id, p_service_id, p_remote_service) AS v);
END $$;

-- The same as a table with one row, for statements about many endpoints: the planner puts only such a function into the statement that calls it.
CREATE OR REPLACE FUNCTION dialoq.level_row(p_contract_id integer, p_service_id integer, p_remote_service text)
RETURNS TABLE (level smallint)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT coalesce((
        SELECT p.priority
        FROM dialoq.conversation_priority AS p
        WHERE (p.service_contract_id IS NULL OR p.service_contract_id = p_contract_id)
            AND (p.local_service_id IS NULL OR p.local_service_id = p_service_id)
            AND (p.remote_service_name IS NULL OR p.remote_service_name = p_remote_service)
        ORDER BY (p.service_contract_id IS NOT NULL)::integer * 4 + (p.local_service_id IS NOT NULL)::integer * 2
            + (p.remote_service_name IS NOT NULL)::integer DESC
        LIMIT 1), 5::smallint)
$$;

