-- Runs the statements in the caller's transaction, or if there is none, in one of the procedure's own. An error ends the
-- procedure at once, even if XACT_ABORT is OFF, and rolls back only a transaction of the procedure's own. A client whose time is over
-- stops the procedure without an error, so no CATCH runs. XACT_ABORT lets the server roll back then.
DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
IF @is_own = 1 SET XACT_ABORT ON;
BEGIN TRY
    IF @is_own = 1 BEGIN TRANSACTION;
    -- <body>
    IF @is_own = 1 COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
    THROW;
END CATCH
