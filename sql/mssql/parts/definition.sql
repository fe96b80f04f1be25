-- A procedure that changes definitions. The client calls several of them in one transaction, so each is refused outside a
-- transaction. An error ends the procedure at once, even if XACT_ABORT is OFF.
-- Errors: 60005, 60020
-- <settings>
BEGIN TRY
    IF @@TRANCOUNT = 0
        THROW 60005, N'definitions change in a transaction; run BEGIN TRANSACTION and EXEC dialoq.define_begin first', 1;
    -- <body>
END TRY
BEGIN CATCH
    THROW;
END CATCH
