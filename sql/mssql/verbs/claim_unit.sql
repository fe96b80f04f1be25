-- Claims the id of a unit, first in its transaction: a unit of that id happens once. Waits until another attempt at the
-- same unit ends.
-- Takes: the unit's id
-- Gives: is_new; done_at, when the id was claimed, which tells one attempt at the unit from another
-- Errors: 51205, 60005
-- Locks: the unit's id
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.claim_unit
    @unit_id uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @is_new bit = 1, @done_at datetime2(6), @got int, @resource nvarchar(255) = CONCAT(N'dialoq:unit:', @unit_id);
    IF @unit_id IS NULL THROW 60005, N'the id of the unit is NULL; give one', 1;
    -- <transaction>
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1,
        @DbPrincipal = N'dialoq_user';
    IF @got < 0
        THROW 51205, N'the transaction waited for another attempt at its unit: a deadlock; roll back and run it again', 1;
    SELECT @is_new = 0, @done_at = d.done_at FROM dialoq.done_unit AS d WHERE d.unit_id = @unit_id;
    IF @is_new = 1
    BEGIN
        SET @done_at = SYSUTCDATETIME();
        INSERT INTO dialoq.done_unit (unit_id, done_at) VALUES (@unit_id, @done_at);
    END
    -- </transaction>
    SELECT @is_new AS is_new, @done_at AS done_at;
END
GO
