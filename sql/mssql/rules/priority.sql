-- The priority level of a conversation's endpoint.
-- Takes: the contract, the service of the endpoint, the name of the other service
-- Gives: the level, 1 (low) to 10 (high)
-- Errors: none
-- Locks: none

-- The level of an endpoint: of the broker priorities that match, the most exact; the contract weighs most, the remote
-- service least.
CREATE FUNCTION dialoq.level_for(@contract_id int, @service_id int, @remote_service nvarchar(512)) RETURNS int AS
BEGIN
    RETURN COALESCE((
        SELECT TOP (1) p.priority
        FROM dialoq.conversation_priority AS p
        WHERE (p.service_contract_id IS NULL OR p.service_contract_id = @contract_id)
            AND (p.local_service_id IS NULL OR p.local_service_id = @service_id)
            AND (p.remote_service_name IS NULL OR p.remote_service_name = @remote_service
                AND DATALENGTH(p.remote_service_name) = DATALENGTH(@remote_service))
        ORDER BY CASE WHEN p.service_contract_id IS NULL THEN 0 ELSE 4 END
            + CASE WHEN p.local_service_id IS NULL THEN 0 ELSE 2 END
            + CASE WHEN p.remote_service_name IS NULL THEN 0 ELSE 1 END DESC), 5);
END
GO
