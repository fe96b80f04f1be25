-- Runs the statements in the caller's transaction, or if there is none, in one of the procedure's own. An error ends the
-- procedure at once, even if XACT_ABORT is OFF, and rolls back only a transaction of the procedure's own.
DECLARE @is_own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
BEGIN TRY
    IF @is_own = 1 BEGIN TRANSACTION;
    -- <body>
    IF @is_own = 1 COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @is_own = 1 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
    THROW;
END CATCH
