-- Whether a unit of that id has happened. Waits until an attempt at the unit that is under way ends.
-- Takes: the unit's id
-- Gives: happened
-- Errors: none
-- Locks: the unit's row, waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.unit_happened
    @unit_id uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @happened bit = 0;
    IF EXISTS (SELECT 1 FROM dialoq.done_unit AS d WITH (READCOMMITTEDLOCK) WHERE d.unit_id = @unit_id) SET @happened = 1;
    SELECT @happened AS happened;
END
GO
