-- A procedure that changes definitions. The client calls several of them in one transaction, so each is refused outside a
-- transaction. An error ends the procedure at once, even if XACT_ABORT is OFF. It waits 250 ms for a row of another transaction,
-- as for a conversation group (define_begin); the client rolls back and tries again. Other definitions, and without
-- READ_COMMITTED_SNAPSHOT all verbs, wait for this transaction, so it must not wait longer.
-- Errors: 1222, 60005, 60020
-- <settings>
SET LOCK_TIMEOUT 250;
BEGIN TRY
    IF @@TRANCOUNT = 0
        THROW 60005, N'definitions change in a transaction; run BEGIN TRANSACTION and EXEC dialoq.define_begin first', 1;
    -- <body>
END TRY
BEGIN CATCH
    THROW;
END CATCH
