-- Writes a contract with its message types, new or not. A dropped one stays, marked, for the conversations over it.
-- Takes: the columns of service_contract; usage_rows: of every message type its name and who sends it
-- Gives: nothing
-- Errors: 60003
-- Locks: the rows
-- Called by: dialoq_admin
CREATE PROCEDURE dialoq.put_service_contract
    @service_contract_id int, @name nvarchar(256), @owner nvarchar(256), @is_dropped bit,
    @usages dialoq.usage_rows READONLY
AS
BEGIN
    -- <definition>
    EXEC dialoq.check_name @name;
    UPDATE dialoq.service_contract SET
        name = @name, owner = @owner, is_dropped = @is_dropped
    WHERE service_contract_id = @service_contract_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.service_contract (
            service_contract_id, name, owner, is_dropped
        ) VALUES (
            @service_contract_id, @name, @owner, @is_dropped
        );
    DELETE FROM dialoq.service_contract_message_usage WHERE service_contract_id = @service_contract_id;
    INSERT INTO dialoq.service_contract_message_usage (
        service_contract_id, position, message_type, is_sent_by_initiator, is_sent_by_target
    )
    SELECT
        @service_contract_id, u.item, u.message_type, CASE WHEN u.is_sent_by_initiator <> 0 THEN 1 ELSE 0 END,
        CASE WHEN u.is_sent_by_target <> 0 THEN 1 ELSE 0 END
    FROM @usages AS u;
    -- </definition>
END
GO
