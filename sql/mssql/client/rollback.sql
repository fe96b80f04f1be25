-- Rolls back whatever transaction is open; also good when the server has done so already.
-- Takes: nothing.
-- Gives: nothing.
IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
