-- Writes a service with the contracts it accepts, new or not, or removes one.
-- Takes: the columns of service; contract_id_rows: its contracts in order; or the service_id
-- Gives: nothing
-- Errors: 60003
-- Locks: the rows
-- Called by: dialoq_admin (put_service, delete_service)
CREATE PROCEDURE dialoq.put_service
    @service_id int, @name nvarchar(256), @owner nvarchar(256), @queue_id int,
    @contracts dialoq.contract_id_rows READONLY
AS
BEGIN
    -- <definition>
    EXEC dialoq.check_name @name;
    UPDATE dialoq.service SET
        name = @name, owner = @owner, queue_id = @queue_id
    WHERE service_id = @service_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.service (
            service_id, name, owner, queue_id
        ) VALUES (
            @service_id, @name, @owner, @queue_id
        );
    DELETE FROM dialoq.service_contract_usage WHERE service_id = @service_id;
    INSERT INTO dialoq.service_contract_usage (service_id, position, service_contract_id)
    SELECT @service_id, c.item, c.service_contract_id FROM @contracts AS c;
    -- </definition>
END
GO
CREATE PROCEDURE dialoq.delete_service
    @service_id int
AS
BEGIN
    -- <definition>
    DELETE FROM dialoq.service_contract_usage WHERE service_id = @service_id;
    DELETE FROM dialoq.service WHERE service_id = @service_id;
    -- </definition>
END
GO
