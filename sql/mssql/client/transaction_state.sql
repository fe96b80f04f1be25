-- What an error has left of the transaction: 1 it can go on, -1 it can only be rolled back, 0 it is gone. A procedure of the user's that was
-- stopped may have left a transaction of its own open: no ROLLBACK to a savepoint ends that, and each COMMIT would only lower the count.
-- Takes: nothing.
-- Gives: state.
IF XACT_STATE() = 1
BEGIN
    WHILE @@TRANCOUNT > 1 COMMIT TRANSACTION;
END
SELECT CAST(XACT_STATE() AS int) AS state;
