-- The same after a statement of the user's in a transaction of ours. A procedure that was stopped, or that failed, may have left a transaction of
-- its own open: no ROLLBACK to a savepoint ends that, and each COMMIT would only lower the count.
-- Takes: nothing.
-- Gives: state.
IF XACT_STATE() = 1
BEGIN
    WHILE @@TRANCOUNT > 1 COMMIT TRANSACTION;
END
SELECT CAST(XACT_STATE() AS int) AS state;
